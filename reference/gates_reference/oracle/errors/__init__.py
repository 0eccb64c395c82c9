"""How large an honest error may be: scales, values near a branch point, and sets of admissible answers."""
