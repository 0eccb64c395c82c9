"""`gates bench compare`: time two revisions of rlkernels by pairs of processes, and fail only if one is certainly slower.

A process loads one build, samples each call without a pause, and reports the 10% quantile. Processes run in the order
ABBA, so that a drift of the machine affects both. The two processes of one build in a block are the control. benches/timing.py decides: `slower` needs an interval without 1 and an effect above the floor.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from benches import timing
from benches.calls import CALLS

ROOT = Path(__file__).resolve().parents[1]
BUILDS = ROOT / ".gates" / "builds"
PROBE = Path(__file__).with_name("probe.py")
HERE = "."  # the build in .venv instead of a revision
PAIRS, SECONDS = 20, 0.12
DEFAULT = (
    "group_advantages 256x16",
    "token_kl k3 32x512",
    "selective_log_softmax 16x151936-flat",
    "sample_tokens top-p 0.95 16x151936-flat",
    "filtered_logprobs top-k 50 16x151936-flat",
    "policy_loss grpo 32x2048 beta 0.04",
    "pack_sequences best-fit-decreasing 1000",
)
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "RLKERNELS_THREADS")
COUNTED_S = 0.004  # seconds of calls counted under valgrind, which is a hundred times slower
CALL_LIMIT_S = 300.0


class CompareError(Exception):
    """Two revisions cannot be compared; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Build:
    """A build of rlkernels: its revision, and the folder of the package."""

    name: str
    site: Path


# ---------------------------------------------------------------- builds


def build(revision, on_line):
    """Return a release build of a revision; one of the same Rust sources is kept under .gates/builds.

    Args:
        revision: for `git rev-parse`, or "." for the build in .venv.
        on_line: called with a line before each slow step.

    Raises:
        CompareError: the revision is unknown or does not build.
    """
    if revision == HERE:
        import rlkernels

        site = Path(tempfile.mkdtemp(prefix="gates-build-"))
        (site / "rlkernels").symlink_to(Path(rlkernels.__file__).parent)
        return Build("the build in .venv", site)
    sha = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    sources = _git("rev-parse", f"{sha}:rust")
    site = BUILDS / sources[:16]
    if not (site / "rlkernels").is_dir():
        on_line(f"building {revision} ({sha[:8]}): a minute or two, once")
        _make(sha, site)
    return Build(f"{revision} ({sha[:8]})", site)


def _git(*arguments):
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    if done.returncode:
        raise CompareError(
            f"git knows no {arguments[-1].partition('^')[0]!r}; name a commit, a branch or a tag, or `.`"
        )
    return done.stdout.strip()


def _make(sha, site):
    BUILDS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gates-source-") as text:
        source, wheels = Path(text) / "source", Path(text) / "wheels"
        archive = subprocess.run(["git", "archive", sha], cwd=ROOT, capture_output=True, check=True).stdout  # noqa: S607
        source.mkdir()
        subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)  # noqa: S607
        command = [sys.executable, "-m", "maturin", "build", "--quiet", "--release", "--locked", "--strip"]
        command += ["--compatibility", "off", "--interpreter", sys.executable, "--out", str(wheels)]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(BUILDS / "target")}
        kernels = source / "rust" / "rlkernels-python"
        folder = kernels if (kernels / "pyproject.toml").is_file() else source  # before rlkernels was a distribution
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompareError(f"{sha[:8]} does not build: {done.stderr.strip()[-600:]}")
        part = site.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        with zipfile.ZipFile(next(wheels.glob("*.whl"))) as wheel:
            wheel.extractall(part, [name for name in wheel.namelist() if name.startswith("rlkernels/")])
        shutil.rmtree(site, ignore_errors=True)
        part.replace(site)


# ---------------------------------------------------------------- pairs


def probe(side, names, seconds, extra=0.0, before=()):
    """Run one process; return the seconds of each call.

    Args:
        side: a `Build`.
        names: of calls.CALLS.
        seconds: duration of the sampling of each call; 0 to make `extra` calls of each instead.
        extra: an artificial slowdown.
        before: a wrapper command, such as valgrind.

    Raises:
        CompareError: the process failed, or it is not a release build.
    """
    # -P and -s instead of -I, which would ignore PYTHONHASHSEED: counts of instructions must not depend on it.
    line = [*before, sys.executable, "-P", "-s", str(PROBE), str(side.site), str(seconds), str(extra), *names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {**dict.fromkeys(THREADS, "1"), "PYTHONHASHSEED": "0" if before else "random"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=CALL_LIMIT_S, check=False)
    if done.returncode:
        raise CompareError(f"{side.name}: the process ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    measured = json.loads(done.stdout)
    if measured["profile"] != "release":
        raise CompareError(f"{side.name} is a {measured['profile']} build, must be a release build: run `make setup`")
    return measured["seconds"]


def in_pairs(left, right, names, *, pairs=PAIRS, seconds=SECONDS, extra=0.0, on_pair=lambda _: None):
    """Run processes in the order ABBA; return, for each name, seconds (pairs,) of A and of B.

    Args:
        left: `Build` A.
        right: `Build` B.
        names: of calls.CALLS.
        pairs: how many, even.
        seconds: of sampling per call and process.
        extra: an artificial slowdown of B.
        on_pair: called with the number of completed pairs.
    """
    taken = {name: ([], []) for name in names}
    for block in range(pairs // 2):
        for side in (0, 1, 1, 0):
            measured = probe((left, right)[side], names, seconds, extra * side)
            for name in names:
                taken[name][side].append(measured[name])
        on_pair(2 * block + 2)
    return taken


def judged(first, second, floor=timing.FLOOR):
    """Return the ratio of B over A, the control, and the verdict of processes that ran in the order ABBA.

    Args:
        first: seconds (n,) of A.
        second: seconds (n,) of B.
        floor: the least relative effect that counts.
    """
    ratio = timing.paired_ratio(second, first)
    control = timing.paired_ratio([*first[0::2], *second[0::2]], [*first[1::2], *second[1::2]])
    return ratio, control, timing.verdict(ratio, control, floor)


# ---------------------------------------------------------------- instructions


def instructions(side, name):
    """Return the instructions of one call, counted by valgrind, or None without valgrind.

    Two runs differ by the calls of `COUNTED_S`, so Python's start and end cancel. Valgrind has no AVX-512, so the kernels
    use AVX2.
    """
    tool = shutil.which("valgrind")
    if tool is None:
        return None
    seconds = probe(side, [name], 0.05)[name]
    more = int(min(max(COUNTED_S / seconds, 2), 2000))
    counts = []
    for calls in (2, 2 + more):
        with tempfile.NamedTemporaryFile() as file:
            under = [tool, "--tool=callgrind", "--callgrind-out-file=/dev/null", f"--log-file={file.name}"]
            probe(side, [name], 0, calls, under)
            text = Path(file.name).read_text(encoding="utf-8")
        counts.append(next(int(line.rsplit(":", 1)[1]) for line in text.splitlines() if "Collected" in line))
    return (counts[1] - counts[0]) / more


def known(names):
    """Return the names, or the default ones.

    Raises:
        CompareError: a name is not in calls.CALLS.
    """
    for name in names:
        if name not in CALLS:
            raise CompareError(f"{name!r} is no benchmark; must be one of: {', '.join(CALLS)}")
    return tuple(dict.fromkeys(names)) or DEFAULT
