"""Time HEAD with asv and fail where nothing was measured; called by `make bench`.

    .venv/bin/python tools/bench.py          # a wheel of HEAD, built from a clean checkout; recorded under results/asv
    .venv/bin/python tools/bench.py --here   # the build in .venv, a few samples each; nothing is recorded

asv clones the repository, builds HEAD's wheel in an environment under .asv/ and writes results/asv/<machine>/. The
machine is named after what it is (system, architecture, processors), never after its host name; asv keeps the name in
~/.asv-machine.json. asv's own --quick discards its results, hence short timing settings instead. The benchmarks are
those of the working tree, so it must not differ from HEAD there.

`--here` is what CI runs: the build in .venv is of the same sources and the same profile as the wheel, which takes two minutes to
compile once more.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from asv import util
from asv.machine import MachineCollection

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "asv"
#: Enough to see a factor, not a percent: one process per benchmark, samples of at least 5 ms, for 0.3 s at most.
SHORT = ("rounds=1", "repeat=(5, 30, 0.3)", "sample_time=0.005", "warmup_time=0.05")
#: Enough to see that a benchmark runs, verifies what it times and gives a number.
SHORTEST = ("rounds=1", "repeat=(2, 5, 0.05)", "sample_time=0.002", "warmup_time=0.01")


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


def words(attributes: Sequence[str]) -> list[str]:
    """Timing settings as arguments of asv."""
    return [word for attribute in attributes for word in ("--attribute", attribute)]


def here(machine: str, commit: str) -> int:
    """Time the build in .venv in asv's place, with one thread as in asv's own environments; return 0 if all was measured."""
    config = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    os.environ.update({name: value for name, (value,) in config["matrix"]["env_nobuild"].items()})
    with tempfile.TemporaryDirectory() as text:
        results = Path(text) / "results"
        file = Path(text) / "asv.conf.json"
        moved = {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benches"), "results_dir": str(results)}
        file.write_text(json.dumps({**config, **moved, "env_dir": text, "html_dir": text}), encoding="utf-8")
        chosen = ["--environment", f"existing:{sys.executable}", "--set-commit-hash", commit]
        status = asv("run", "--config", str(file), "--machine", machine, "--show-stderr", *chosen, *words(SHORTEST))
        return status or missing([*(results / machine).glob(f"{commit[:8]}-*.json")])


def missing(files: Sequence[Path]) -> int:
    """Say how many benchmarks gave a number; return 1 if one did not, or if there is none."""
    counts = [count(file) for file in files]
    measured, expected = sum(c[0] for c in counts), sum(c[1] for c in counts)
    print(f"{measured} of {expected} benchmarks measured")
    return int(measured == 0 or measured < expected)


def main() -> int:
    """Return 0 if every benchmark gave a number."""
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
    # Not `asv machine`: given a name, it drops every fact that it would have found by itself.
    MachineCollection.save(machine, facts)
    if "--here" in sys.argv[1:]:
        return here(machine, commit)
    for again in (True, False):
        status = asv("run", "--machine", machine, "--show-stderr", *words(SHORT), f"{commit}^!")
        files = sorted((RESULTS / machine).glob(f"{commit[:8]}-*.json"))
        if files or not again:
            break
        print(f"asv ended with {status} and measured nothing: once more, in a new environment.")
        shutil.rmtree(ROOT / ".asv", ignore_errors=True)  # pip may have been interrupted in the middle of one
    print(f"results in {(RESULTS / machine).relative_to(ROOT)}")
    return status or missing(files)


if __name__ == "__main__":
    sys.exit(main())
