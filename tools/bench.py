"""Time HEAD with asv, and fail where nothing was measured; `make bench` and `make bench-full` call it.

    .venv/bin/python tools/bench.py                    # a wheel of HEAD, built from a clean checkout; kept under .asv
    .venv/bin/python tools/bench.py --record           # more samples; recorded under results/asv; builds the site
    .venv/bin/python tools/bench.py --here             # the build in .venv, a few samples each; nothing is kept
    .venv/bin/python tools/bench.py --continuous main  # HEAD against the merge base with main; 1 if HEAD is slower

asv clones the repository, builds HEAD's wheel in an environment under .asv/ and writes its results. The machine is named
after what it is (system, architecture, processors), never after its host name; asv keeps the name in
~/.asv-machine.json. asv's own --quick discards its results, hence short timing settings instead. The benchmarks are those
of the working tree, so it must not differ from HEAD there.

`--here` is what CI runs: the build in .venv is of the same sources and the same profile as the wheel, which takes two
minutes to compile once more. `--continuous` lets asv look for changes, and `gates bench compare` decide: identical code
differs by asv's own test in one to six benchmarks of twelve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from asv import util
from asv.machine import MachineCollection

ROOT = Path(__file__).parents[1]
KEPT, RECORDED = ROOT / ".asv" / "results", ROOT / "results" / "asv"
#: Enough to see a factor, not a percent: one process per benchmark, samples of at least 5 ms, for 0.3 s at most.
SHORT = ("rounds=1", "repeat=(5, 30, 0.3)", "sample_time=0.005", "warmup_time=0.05")
#: Enough to see that a benchmark runs, verifies what it times and gives a number.
SHORTEST = ("rounds=1", "repeat=(2, 5, 0.05)", "sample_time=0.002", "warmup_time=0.01")
LONGER = ("rounds=2", "repeat=(10, 60, 1.0)", "sample_time=0.01", "warmup_time=0.1")
SUSPECT = 1.05  # a benchmark that asv finds slower by this factor is timed again by pairs of processes
KERNEL = "kernels.Kernels.time_call"
LISTED = 12  # failed benchmarks that are named


def asv(*arguments: str) -> int:
    """Run asv beside this interpreter and return its exit status."""
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=ROOT, check=False).returncode


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def values(files: Sequence[Path]) -> dict[str, float | None]:
    """Return the result of each benchmark with its parameters: NaN where it is n/a, None where it failed."""
    found: dict[str, float | None] = {}
    for file in files:
        record = json.loads(file.read_text(encoding="utf-8"))
        columns = record["result_columns"]
        for name, row in record["results"].items():
            cells = dict(zip(columns, row, strict=False))
            results = cells["result"] if isinstance(cells["result"], list) else [cells["result"]]
            for label, value in zip(_labels(cells.get("params") or []), results, strict=False):
                found[f"{name}{label}"] = math.nan if value is not None and math.isnan(value) else value
    return found


def _labels(params: Sequence[Sequence[str]]) -> list[str]:
    """Return a label for each combination, in asv's order."""
    labels = [""]
    for choices in params:
        labels = [f"{label}, {choice}" for label in labels for choice in choices]
    return [f"({label.removeprefix(', ')})" if label else "" for label in labels]


def summary(found: Mapping[str, float | None]) -> tuple[list[str], int]:
    """Return what to print of the results, and the exit status: 1 if one failed, or if there is none."""
    absent = sorted(name for name, value in found.items() if value is not None and math.isnan(value))
    failed = sorted(name for name, value in found.items() if value is None)
    measured = len(found) - len(absent) - len(failed)
    lines = [f"{measured} of {len(found)} benchmarks measured, {len(absent)} n/a, {len(failed)} failed"]
    lines += [f"  n/a: {group}: {count}" for group, count in sorted(Counter(map(_group, absent)).items())]
    lines += [f"  failed: {name}" for name in failed[:LISTED]]
    if len(failed) > LISTED:
        lines.append(f"  failed: and {len(failed) - LISTED} more")
    return lines, int(measured == 0 or bool(failed))


def _group(name: str) -> str:
    """Return the benchmark with the last word of its parameters: the peer of a ratio, or an instruction set."""
    head, _, parameters = name.partition("(")
    quoted = re.findall(r"'([^']*)'", parameters)
    return f"{head}, {quoted[-1].split()[-1]}" if quoted else head


def words(attributes: Sequence[str]) -> list[str]:
    """Return timing settings as arguments of asv."""
    return [word for attribute in attributes for word in ("--attribute", attribute)]


def machine() -> str:
    """Write this machine's facts where asv looks for them, and return its name.

    Not `asv machine`: given a name, it drops every fact that it would have found by itself.
    """
    facts = {
        "machine": f"{platform.system()}-{platform.machine()}-{os.cpu_count()}cpu".lower(),
        "os": platform.system(),
        "arch": platform.machine(),
        "cpu": util.get_cpu_info(),
        "num_cpu": str(os.cpu_count()),
        "ram": str(util.get_memsize()),
    }
    MachineCollection.save(facts["machine"], facts)
    return facts["machine"]


def configuration(folder: Path, **changes: str) -> Path:
    """Write a configuration beside the repository's own, with absolute paths and these changes; return its path."""
    config = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    absolute: dict[str, Any] = {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benches")}
    absolute |= {key: str(ROOT / config[key]) for key in ("results_dir", "env_dir", "html_dir")}
    for commands in ("build_command", "install_command"):
        absolute[commands] = [line.replace("{conf_dir}", str(ROOT)) for line in config[commands]]
    file = folder / "asv.conf.json"
    file.write_text(json.dumps({**config, **absolute, **changes}), encoding="utf-8")
    return file


def results(folder: Path, commit: str) -> list[Path]:
    """Return the files of a commit."""
    return sorted((folder / machine()).glob(f"{commit[:8]}-*.json"))


def here() -> int:
    """Time the build in .venv in asv's place, with one thread as in asv's own environments."""
    config = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    os.environ.update({name: value for name, (value,) in config["matrix"]["env_nobuild"].items()})
    commit = git("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        file = configuration(folder, results_dir=str(folder / "results"), env_dir=text, html_dir=text)
        chosen = ["--environment", f"existing:{sys.executable}", "--set-commit-hash", commit]
        os.environ["GATES_BENCH_QUICK"] = "1"
        status = asv("run", "--config", str(file), "--machine", machine(), "--show-stderr", *chosen, *words(SHORTEST))
        lines, bad = summary(values(results(folder / "results", commit)))
    print(*lines, sep="\n")
    return status or bad


def run(*, record: bool) -> int:
    """Time HEAD's wheel."""
    commit, target = git("rev-parse", "HEAD"), RECORDED if record else KEPT
    with tempfile.TemporaryDirectory() as text:
        file = configuration(Path(text), results_dir=str(target))
        settings = words(LONGER if record else SHORT)
        for again in (True, False):
            line = ["run", "--config", str(file), "--machine", machine(), "--show-stderr", *settings, f"{commit}^!"]
            status = asv(*line)
            files = results(target, commit)
            if files or not again:
                break
            print(f"asv ended with {status} and measured nothing: once more, in a new environment.")
            shutil.rmtree(
                ROOT / ".asv" / "env", ignore_errors=True
            )  # pip may have been interrupted in the middle of one
        lines, bad = summary(values(files))
        print(*lines, f"results in {target.relative_to(ROOT)}", sep="\n")
        if record:
            asv("publish", "--config", str(file))
            print("the site is in .asv/html; `.venv/bin/asv preview` shows it")
    return status or bad


def continuous(branch: str) -> int:
    """Compare HEAD with the merge base of a branch; return 1 if a kernel is surely slower.

    asv times every kernel of both; what it finds slower, and the default benchmarks, are timed by pairs of processes.
    """
    base, head = git("merge-base", branch, "HEAD"), git("rev-parse", "HEAD")
    if base == head:
        print(f"HEAD is the merge base with {branch}: there is nothing to compare")
        return 0
    if git("rev-parse", f"{base}:rust") == git("rev-parse", f"{head}:rust"):
        print(f"the Rust sources of {base[:8]} and {head[:8]} are the same: there is nothing to compare")
        return 0
    with tempfile.TemporaryDirectory() as text:
        file = configuration(Path(text), results_dir=str(KEPT))
        line = ["continuous", "--config", str(file), "--machine", machine(), "--bench", KERNEL, "--interleave-rounds"]
        asv(*line, "--factor", str(SUSPECT), *words(SHORT), base, head)
        before, after = (values(results(KEPT, commit)) for commit in (base, head))
    suspects = slower(before, after)
    print(f"asv finds {len(suspects)} kernels slower by {SUSPECT:g}; pairs of processes decide")
    chosen = ["--usual", *(word for name in suspects for word in ("--only", name))]
    line = [sys.executable, "-m", "gates", "bench", "compare", base, head, *chosen]
    return subprocess.run(line, check=False).returncode


def slower(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> list[str]:
    """Return the names of kernels that asv finds slower by `SUSPECT`, as `gates bench compare --only` takes them."""
    found = []
    for label, new in after.items():
        name = re.fullmatch(re.escape(KERNEL) + r"\('(.*)'\)", label)
        old = before.get(label)
        if name and old and new and new > SUSPECT * old:
            found.append(name[1])
    return found


def main() -> int:
    """Return 0 if every benchmark gave a number or is n/a."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--here", action="store_true", help="the build in .venv; nothing is kept")
    parser.add_argument("--record", action="store_true", help="more samples, under results/asv; builds the site")
    parser.add_argument("--continuous", metavar="BRANCH", help="against the merge base with this branch")
    options = parser.parse_args()
    if git("status", "--porcelain", "benches", "asv.conf.json"):
        print("benches/ or asv.conf.json differ from HEAD: commit or stash them, results belong to a commit.")
        return 2
    if options.continuous:
        return continuous(options.continuous)
    return here() if options.here else run(record=options.record)


if __name__ == "__main__":
    sys.exit(main())
