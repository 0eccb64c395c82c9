"""asv benchmarks of the kernels. A candidate is verified against the oracle before it is timed.

Times of different machines and processes do not compare; the `Ratio` classes interleave both candidates in one process.
"""
