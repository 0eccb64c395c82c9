"""A fork has none of its parent's threads, and the kernels work in it all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, warnings
import numpy as np, rlkernels
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks of programs with threads: the subject here
rlkernels.set_threads(2)
logits, ids = np.random.default_rng(0).normal(size=(16, 40_000)).astype(np.float32), np.zeros(16, np.int64)
before = rlkernels.selective_log_softmax(logits, ids)  # makes the pool
child = os.fork()
same = rlkernels.selective_log_softmax(logits, ids).tobytes() == before.tobytes()
if child == 0:
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
sys.exit(0 if same and os.waitstatus_to_exitcode(status) == 0 else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")
def test_parent_and_child_go_on() -> None:
    """After a parallel call both sides of a fork make another, with the same bits; a pool shared with the parent would hang."""
    assert subprocess.run([sys.executable, "-c", SCRIPT], timeout=60, check=False).returncode == 0
