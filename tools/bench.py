"""Times HEAD with asv and fails where nothing was measured; called by `make bench`.

asv clones the repository, builds HEAD's wheel in an environment under .asv/ and writes results/asv/<machine>/. The
machine is named after what it is (system, architecture, processors), never after its host name; asv keeps the name in
~/.asv-machine.json. asv's own --quick discards its results, hence short timing settings instead. The benchmarks are
those of the working tree, so it must not differ from HEAD there.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from asv import util
from asv.machine import MachineCollection

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "asv"
#: Enough to see a factor, not a percent: one process per benchmark, samples of at least 5 ms, for 0.3 s at most.
SHORT = ("rounds=1", "repeat=(5, 30, 0.3)", "sample_time=0.005", "warmup_time=0.05")


def asv(*arguments: str) -> int:
    """Run asv beside this interpreter and return its exit status."""
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=ROOT, check=False).returncode


def git(*arguments: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def count(file: Path) -> tuple[int, int]:
    """How many values of a result file are numbers, and how many there should be."""
    record = json.loads(file.read_text(encoding="utf-8"))
    column = record["result_columns"].index("result")
    values: list[float | None] = []
    for row in record["results"].values():
        values.extend(row[column] if isinstance(row[column], list) else [row[column]])
    return sum(v is not None and math.isfinite(v) for v in values), len(values)


def main() -> int:
    """0 where every benchmark yielded a number."""
    if git("status", "--porcelain", "benches", "asv.conf.json"):
        print("benches/ or asv.conf.json differ from HEAD: commit or stash them, results belong to a commit.")
        return 2
    facts = {
        "machine": f"{platform.system()}-{platform.machine()}-{os.cpu_count()}cpu".lower(),
        "os": platform.system(),
        "arch": platform.machine(),
        "cpu": util.get_cpu_info(),
        "num_cpu": str(os.cpu_count()),
        "ram": str(util.get_memsize()),
    }
    machine = facts["machine"]
    commit = git("rev-parse", "HEAD")
    settings = [word for setting in SHORT for word in ("--attribute", setting)]
    # Not `asv machine`: given a name, it drops every fact that it would have found by itself.
    MachineCollection.save(machine, facts)
    for again in (True, False):
        status = asv("run", "--machine", machine, "--show-stderr", *settings, f"{commit}^!")
        files = sorted((RESULTS / machine).glob(f"{commit[:8]}-*.json"))
        if files or not again:
            break
        print(f"asv ended with {status} and measured nothing: once more, in a new environment.")
        shutil.rmtree(ROOT / ".asv", ignore_errors=True)  # pip may have been interrupted in the middle of one
    counts = [count(file) for file in files]
    measured, expected = sum(c[0] for c in counts), sum(c[1] for c in counts)
    print(f"{measured} of {expected} benchmarks measured; results in {(RESULTS / machine).relative_to(ROOT)}")
    return status or int(measured == 0 or measured < expected)


if __name__ == "__main__":
    sys.exit(main())
