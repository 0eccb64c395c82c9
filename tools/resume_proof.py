"""Kill a training run at 100 random moments and compare its bytes with an uninterrupted one; run by `make record`.

    .venv/bin/python tools/resume_proof.py          # a quarter of an hour; results/trainer/proofs.jsonl
    .venv/bin/python tools/resume_proof.py 3        # three kills, not recorded

The short form, ten kills, is a test of `make test`.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from typing import Any

import proofs

RECORD = proofs.ROOT / "results" / "trainer" / "proofs.jsonl"
KILLS = 100
TEST = "tests/reference/trainer/test_checkpoint.py::test_killed_at_random_moments"
SAID = r"(\d+) kills, (\d+) of them behind an end that is identical, (\d+) ends"
PACKAGES = ("rl-gates", "mlx", "mlx-lm", "numpy", "safetensors")


def resume(kills: int) -> dict[str, Any]:
    """SIGKILL at this many random moments of one run after another, each resumed to its end and compared."""
    command = ["python", "-m", "pytest", "-s", TEST]
    text = proofs.output([sys.executable, *command[1:]], KILLS=str(kills))
    killed, identical, ends = map(int, proofs.numbers(SAID, text))
    return {
        "proof": "resume",
        "command": f"KILLS={kills} " + " ".join(command),
        "found": {"kills": killed, "identical": identical, "ends": ends},
        "versions": {name: importlib.metadata.version(name) for name in PACKAGES}
        | {"python": platform.python_version()},
    }


def main() -> None:
    """Run the proof; record it if it was run in full."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    shared = proofs.circumstances()  # before the run, since there may be commits meanwhile
    line = {**resume(kills), **shared}
    if kills < KILLS:
        print(line["found"])
    else:
        proofs.record(RECORD, line)


if __name__ == "__main__":
    main()
