"""Our kernels against other people's code, in one process, in turns: `python -m benches.versus`.

asv imports every module of `benches` in an environment that has NumPy alone, so peers and the judge's records are
imported where they are used.
"""
