"""The call shapes of other libraries over the kernels of `rlkernels`, for people who switch."""
