"""The command line: `python -m benches.versus`. Thread counts are set before anything that reads them is imported."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "RLKERNELS_THREADS")


def main(arguments=None):
    """0 where every row was timed, 1 where one of ours is wrong or failed, 2 for a setup that cannot be measured."""
    parser = argparse.ArgumentParser(prog="python -m benches.versus", description="Time rlkernels against its peers.")
    parser.add_argument("--quick", action="store_true", help="a smoke test: small shapes, few samples")
    parser.add_argument(
        "--only", action="append", default=[], metavar="WORDS", help="rows whose name has all the words"
    )
    parser.add_argument("--list", action="store_true", help="print the rows' names and leave")
    parser.add_argument("--isa", default="", help="force an instruction set (RLKERNELS_ISA); off AVX-512 goals halve")
    parser.add_argument("--threads", type=int, default=2, help="of every library (default 2)")
    parser.add_argument("--out", type=Path, default=Path("results/runs"), metavar="FOLDER", help="of the speed file")
    parser.add_argument("--roofline", type=Path, metavar="PROGRAM", help="built from benches/versus/roofline.rs")
    options = parser.parse_args(arguments)
    os.environ.update(dict.fromkeys(THREADS, str(options.threads)))
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    os.environ["HF_HUB_OFFLINE"] = "1"  # nothing is loaded from anywhere
    if options.isa:
        os.environ["RLKERNELS_ISA"] = options.isa
    from benches.versus import run

    return run.run(options)


if __name__ == "__main__":
    sys.exit(main())
