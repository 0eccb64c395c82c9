"""What is timed, one family of ops per file. Each file's `rows()` names its rows without building anything."""
