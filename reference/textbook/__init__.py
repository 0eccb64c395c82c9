"""Textbook programs: each op as a careful author writes it in the data's dtype, in numbers that carry their own bounds.

They say how far an honest float32 or float64 program may lie from the definition. They share no code with the oracle.
"""
