"""The long proofs of the Rust kernels: run by `make record`, recorded in results/kernels/proofs.jsonl, read by a test.

    .venv/bin/python tools/kernel_proofs.py                      # all of them
    .venv/bin/python tools/kernel_proofs.py neon fuzz-short      # the two that CI repeats if the sources changed

Each line is one proof: its command, machine and numbers, and `sources`, a digest of the files that it depends on. `.ci/run`
runs the short forms of NEON and fuzzing unless the record has them for the sources of its commit, since compiling the
crate for another processor and with AddressSanitizer takes a third of its time.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import proofs
from kernel_sources import RECORD, sources
from proofs import numbers, output

TARGET = "x86_64-unknown-linux-gnu"
CARGO_TEST = ["--manifest-path", "rust/Cargo.toml", "--locked", "--package", "rlkernels"]
FUZZ_SECONDS, SHORT_SECONDS = 150, 5  # of fuzzing, for each target
#: Of every family those that Miri runs in seconds: a filter by names.
SHORT_TESTS = [
    "special_values",
    "a_clip_acts",
    "metrics_count",
    "what_is_certain",
    "the_strategies_differ",
    "no_rows_are",
]
SHORT_TESTS += ["on_policy_the"]
PASSED = re.compile(r"test result: ok\. (\d+) passed")


def exp_and_log() -> dict[str, Any]:
    """Every float32, and 10^9 samples of float64."""
    chosen = ["--test", "kernels", "math::", "--", "--ignored", "--nocapture"]
    command = ["cargo", "test", "--release", *CARGO_TEST, *chosen]
    text = output(command)
    exp32, log32 = numbers(r"all 2\^32 inputs: exp ([\d.]+) ulp, log ([\d.]+) ulp", text)
    exp64, log64 = numbers(r"10\^9 samples: exp (\d+) steps, log (\d+) steps", text)
    errors = {"exp float32 ulp": exp32, "log float32 ulp": log32}
    steps = {"exp float64 steps beside the platform's": exp64, "log float64 steps beside the platform's": log64}
    return {"proof": "exp and log", "command": " ".join(command), "found": {**errors, **steps}}


def neon() -> dict[str, Any]:
    """The crate's tests on an emulated arm64 processor, whose digests of result bits equal those of x86-64."""
    text = output(["tools/neon"], RLKERNELS_NEED_NEON="1")
    return {
        "proof": "NEON",
        "command": "tools/neon",
        "found": {"tests passed": sum(map(int, PASSED.findall(text)))},
    }


def fuzz(proof: str, seconds: int) -> dict[str, Any]:
    """No input makes a kernel panic, read outside a slice (AddressSanitizer) or differ between instruction sets."""
    command = ["tools/fuzz", str(seconds)]
    executions = {
        name: int(count) for name, count in re.findall(r"^(\w+): (\d+) executions$", output(command), re.MULTILINE)
    }
    return {"proof": proof, "command": " ".join(command), "found": {**executions, "total": sum(executions.values())}}


def address_sanitizer() -> dict[str, Any]:
    """The crate's tests with AddressSanitizer, which needs the nightly toolchain."""
    command = ["cargo", "+nightly", "test", *CARGO_TEST, "--lib", "--tests", "--target", TARGET]
    text = output(command, RUSTFLAGS="-Zsanitizer=address", CARGO_TARGET_DIR="rust/target/asan")
    return {
        "proof": "AddressSanitizer",
        "command": "RUSTFLAGS=-Zsanitizer=address " + " ".join(command),
        "found": {"tests passed": sum(map(int, PASSED.findall(text)))},
    }


def miri() -> dict[str, Any]:
    """Examples and short tests of the kernels in Miri, on scalar lanes: no undefined behaviour in what all processors run.

    Miri interprets, about 1000 times slower: all tests would take hours, and it knows few of the intrinsics. It moves the
    results of the platform's `ln` and `powi` by random errors unless told not to.
    """
    flags = "-Zmiri-disable-isolation -Zmiri-deterministic-floats"
    command = ["cargo", "+nightly", "miri", "test", *CARGO_TEST]
    passed = 0
    for chosen in (["--doc"], ["--test", "kernels", "--", *SHORT_TESTS]):
        text = output([*command, *chosen], RLKERNELS_ISA="scalar", MIRIFLAGS=flags, CARGO_TARGET_DIR="rust/target/miri")
        passed += sum(map(int, PASSED.findall(text)))
    return {
        "proof": "Miri",
        "command": f"RLKERNELS_ISA=scalar MIRIFLAGS='{flags}' {' '.join([*command, '--test', 'kernels', '--', *SHORT_TESTS])}",
        "found": {"tests passed": passed},
    }


def valgrind() -> dict[str, Any]:
    """The tests of the boundary to Python under memcheck: no report has a frame of rlkernels in it.

    CPython, NumPy and the C library have reports of their own, such as vector reads past the end of a string.
    """
    tests = [f"tests/rlkernels/test_{name}.py" for name in ("boundary", "dlpack", "input")]
    chosen = ["-m", "not slow", "-k", "not nothing_but_junk and not threads"]  # 50 times slower than without it
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        command = ["valgrind", "--error-limit=no", "--num-callers=40", f"--log-file={log}"]
        command += [sys.executable, "-m", "pytest", *tests, *chosen]
        (passed,) = numbers(r"(\d+) passed", output(command, PYTHONMALLOC="malloc"))
        reports = re.split(r"^==\d+== $", log.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        "proof": "valgrind",
        "command": "PYTHONMALLOC=malloc valgrind --error-limit=no python -m pytest " + " ".join([*tests, *chosen]),
        "found": {"tests passed": int(passed), "reports": sum("rlkernels" in report for report in reports[1:])},
    }


PROOFS: dict[str, Callable[[], dict[str, Any]]] = {
    "exp-and-log": exp_and_log,
    "neon": neon,
    "fuzz": partial(fuzz, "fuzz", FUZZ_SECONDS),
    "fuzz-short": partial(fuzz, "fuzz in short", SHORT_SECONDS),
    "asan": address_sanitizer,
    "miri": miri,
    "valgrind": valgrind,
}


def main() -> None:
    """Run the named proofs, or all, and record each at its end, so that an interrupt only loses the running one."""
    chosen = sys.argv[1:] or list(PROOFS)
    if unknown := set(chosen) - set(PROOFS):
        raise SystemExit(f"{', '.join(unknown)}: must be of {', '.join(PROOFS)}")
    now = sources()
    if not now:
        raise SystemExit("rust/ is not as it is committed; commit first, for a record names what it was made of")
    shared = {**proofs.circumstances(), "sources": now}
    for name in chosen:
        proofs.record(RECORD, {**PROOFS[name](), **shared})


if __name__ == "__main__":
    main()
