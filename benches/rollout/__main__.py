"""The command line: `python -m benches.rollout`. Threads and the BLAS are set before anything that reads them is imported."""

from __future__ import annotations

import argparse
import ctypes.util
import os
import sys
from pathlib import Path

from benches.versus.__main__ import THREADS

BLAS = "openblas"


def main(arguments=None):
    """0 where every row was timed, 1 where one of ours is wrong or failed, 2 for a setup that cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benches.rollout", description="Time rollouts against their peers.")
    parser.add_argument("--quick", action="store_true", help="a smoke test: the smallest shapes, few samples")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORDS", help="rows whose name has all the words"
    )
    parser.add_argument("--list", action="store_true", help="print the rows' names and leave")
    parser.add_argument("--threads", type=int, default=2, help="of every library (default 2)")
    parser.add_argument("--out", type=Path, default=Path("results/runs"), metavar="FOLDER", help="of the speed file")
    parser.add_argument("--bundled-blas", action="store_true", help="leave MLX its own BLAS where OpenBLAS is found")
    options = parser.parse_args(arguments)
    options.isa, options.roofline = "", None
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is loaded from anywhere
    if not options.list and not options.bundled_blas:
        _preload_blas()
    from benches.rollout import rows
    from benches.versus import run

    return run.run(options, families=(rows,), program="benches.rollout")


def _preload_blas():
    """Start anew with OpenBLAS loaded first, where this machine has it: for us and for every peer alike."""
    library = ctypes.util.find_library(BLAS) if sys.platform == "linux" else None
    if library is None or BLAS in os.environ.get("LD_PRELOAD", ""):
        return
    os.environ["LD_PRELOAD"] = library
    os.execv(sys.executable, [sys.executable, "-m", "benches.rollout", *sys.argv[1:]])  # noqa: S606  this very program


if __name__ == "__main__":
    sys.exit(main())
