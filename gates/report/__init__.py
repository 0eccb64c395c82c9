"""Results files and what is rendered from them."""
