"""Gates, the independent referee of LLM reinforcement-learning post-training.

Where a file may be cut short, no bytecode is written: before 3.14, CPython keeps the part of a `.pyc` file that a limit or a
full disk let through (gh-126606), and every later import of that module fails with `marshal data too short`.
"""

import os
import sys

try:
    import resource
except ImportError:  # Windows has none
    resource = None  # type: ignore[assignment]


def _files_may_be_cut_short(free_bytes: int = 64 << 20) -> bool:
    if resource and resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return True
    try:
        disk = os.statvfs(__file__)
    except (AttributeError, OSError):
        return False
    return disk.f_bavail * disk.f_frsize < free_bytes


if _files_may_be_cut_short():
    sys.dont_write_bytecode = True
