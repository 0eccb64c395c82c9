"""The formulas, literally as the papers write them: nothing in here says how large an error may be."""
