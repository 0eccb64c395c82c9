"""The numbers of a step, and the callbacks that receive them."""
