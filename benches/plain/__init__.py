"""What rlkernels is timed against beside libraries: the plain formula in NumPy, torch and MLX. Loaded by path in a worker."""
