"""Plain formulas in NumPy, torch and MLX against which rlkernels is timed; loaded by path in a worker."""
