"""Time HEAD with asv, and fail if nothing was measured; `make bench` and `make bench-full` call it.

    .venv/bin/python tools/bench.py                    # a wheel of HEAD, built from a clean checkout; kept under .asv
    .venv/bin/python tools/bench.py --record           # more samples; recorded under results/asv; builds the site
    .venv/bin/python tools/bench.py --here             # the build in .venv, a few samples each; nothing is kept
    .venv/bin/python tools/bench.py --continuous main  # HEAD against the merge base with main; 1 if HEAD is slower

asv clones the repository, builds HEAD's wheel in an environment under .asv/ and writes its results. The machine's name is
made of system, architecture and processors, never its host name; asv keeps the name in ~/.asv-machine.json. asv's own
--quick discards its results, hence short timing settings instead. The benchmarks are those of the working tree, so it must
not differ from HEAD there.

CI runs `--here`: the build in .venv has the same sources and profile as the wheel, which takes two minutes to compile.
With `--continuous` asv finds candidates and `gates bench compare` decides, since asv's own test reports one to six of
twelve benchmarks of identical code as changed.
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
#: Enough for a factor, not for a percent: one process per benchmark, samples of at least 5 ms, for at most 0.3 s.
SHORT = ("rounds=1", "repeat=(5, 30, 0.3)", "sample_time=0.005", "warmup_time=0.05")
#: Enough to see that a benchmark runs, verifies its result and gives a number.
SHORTEST = ("rounds=1", "repeat=(2, 5, 0.05)", "sample_time=0.002", "warmup_time=0.01")
LONGER = ("rounds=2", "repeat=(10, 60, 1.0)", "sample_time=0.01", "warmup_time=0.1")
SUSPECT = 1.05  # benchmarks slower by this factor are timed again by pairs of processes
KERNEL = "kernels.Kernels.time_call"
LISTED = 12  # most failed benchmarks in the summary


def asv(*arguments: str) -> int:
    """Run asv of this environment and return its exit status."""
    return subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=ROOT, check=False).returncode


def git(*arguments: str) -> str:
    """Return git's output."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def values(files: Sequence[Path]) -> dict[str, float | None]:
    """Return the result of each benchmark with its parameters: NaN if n/a, None if failed."""
    by_name: dict[str, float | None] = {}
    for file in files:
        record = json.loads(file.read_text(encoding="utf-8"))
        columns = record["result_columns"]
        for name, row in record["results"].items():
            cells = dict(zip(columns, row, strict=False))
            results = cells["result"] if isinstance(cells["result"], list) else [cells["result"]]
            for label, value in zip(_labels(cells.get("params") or []), results, strict=False):
                by_name[f"{name}{label}"] = math.nan if value is not None and math.isnan(value) else value
    return by_name


def _labels(params: Sequence[Sequence[str]]) -> list[str]:
    """Return a label for each combination, in asv's order."""
    labels = [""]
    for choices in params:
        labels = [f"{label}, {choice}" for label in labels for choice in choices]
    return [f"({label.removeprefix(', ')})" if label else "" for label in labels]


def summary(results: Mapping[str, float | None]) -> tuple[list[str], int]:
    """Return the summary's lines, and the exit status: 1 if a benchmark failed or there is none."""
    absent = sorted(name for name, value in results.items() if value is not None and math.isnan(value))
    failed = sorted(name for name, value in results.items() if value is None)
    measured = len(results) - len(absent) - len(failed)
    lines = [f"{measured} of {len(results)} benchmarks measured, {len(absent)} n/a, {len(failed)} failed"]
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


def arguments(attributes: Sequence[str]) -> list[str]:
    """Return timing settings as arguments for asv."""
    return [word for attribute in attributes for word in ("--attribute", attribute)]


def machine() -> str:
    """Write this machine's facts to asv's file, and return its name.

    `asv machine` with a name would drop the facts that it detects.
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
    """Write a copy of the repository's configuration with absolute paths and these changes; return its path."""
    config = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    absolute: dict[str, Any] = {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benches")}
    absolute |= {key: str(ROOT / config[key]) for key in ("results_dir", "env_dir", "html_dir")}
    for commands in ("build_command", "install_command"):
        absolute[commands] = [line.replace("{conf_dir}", str(ROOT)) for line in config[commands]]
    file = folder / "asv.conf.json"
    file.write_text(json.dumps({**config, **absolute, **changes}), encoding="utf-8")
    return file


def results(folder: Path, commit: str) -> list[Path]:
    """Return the results files of a commit."""
    return sorted((folder / machine()).glob(f"{commit[:8]}-*.json"))


def here() -> int:
    """Time the build in .venv, with one thread as in asv's environments."""
    config = json.loads((ROOT / "asv.conf.json").read_text(encoding="utf-8"))
    os.environ.update({name: value for name, (value,) in config["matrix"]["env_nobuild"].items()})
    commit = git("rev-parse", "HEAD")
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        file = configuration(folder, results_dir=str(folder / "results"), env_dir=text, html_dir=text)
        chosen = ["--environment", f"existing:{sys.executable}", "--set-commit-hash", commit]
        os.environ["GATES_BENCH_QUICK"] = "1"
        status = asv(
            "run", "--config", str(file), "--machine", machine(), "--show-stderr", *chosen, *arguments(SHORTEST)
        )
        lines, bad = summary(values(results(folder / "results", commit)))
    print(*lines, sep="\n")
    return status or bad


def run(*, record: bool) -> int:
    """Time HEAD's wheel."""
    commit, target = git("rev-parse", "HEAD"), RECORDED if record else KEPT
    with tempfile.TemporaryDirectory() as text:
        file = configuration(Path(text), results_dir=str(target))
        settings = arguments(LONGER if record else SHORT)
        for again in (True, False):
            line = ["run", "--config", str(file), "--machine", machine(), "--show-stderr", *settings, f"{commit}^!"]
            status = asv(*line)
            files = results(target, commit)
            if files or not again:
                break
            print(f"asv ended with {status} and measured nothing: once more, in a new environment.")
            shutil.rmtree(ROOT / ".asv" / "env", ignore_errors=True)  # pip may have been interrupted
        lines, bad = summary(values(files))
        print(*lines, f"results in {target.relative_to(ROOT)}", sep="\n")
        if record:
            asv("publish", "--config", str(file))
            print("the site is in .asv/html; `.venv/bin/asv preview` shows it")
    return status or bad


def continuous(branch: str) -> int:
    """Compare HEAD with the merge base of a branch; return 1 if a kernel is certainly slower.

    asv times every kernel of both; slower ones and the default benchmarks are timed again by pairs of processes.
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
        asv(*line, "--factor", str(SUSPECT), *arguments(SHORT), base, head)
        before, after = (values(results(KEPT, commit)) for commit in (base, head))
    suspects = slower(before, after)
    print(f"asv finds {len(suspects)} kernels slower by {SUSPECT:g}; pairs of processes decide")
    chosen = ["--usual", *(word for name in suspects for word in ("--only", name))]
    line = [sys.executable, "-m", "gates", "bench", "compare", base, head, *chosen]
    return subprocess.run(line, check=False).returncode


def slower(before: Mapping[str, float | None], after: Mapping[str, float | None]) -> list[str]:
    """Return the names of kernels slower by `SUSPECT`, for `gates bench compare --only`."""
    names = []
    for label, new in after.items():
        name = re.fullmatch(re.escape(KERNEL) + r"\('(.*)'\)", label)
        old = before.get(label)
        if name and old and new and new > SUSPECT * old:
            names.append(name[1])
    return names


def main() -> int:
    """Return 0 if every benchmark has a number or is n/a."""
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
