"""Say what wrong code computes instead: one forward definition per op, with named edits that compose."""
