"""The header of a speed file, and where the file goes."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDED, RUNS = ROOT / "results" / "bench", ROOT / "results" / "runs"
QUIET_PERCENT = 10.0


def header(kind, *, threads, quick, planned, patience=1):
    """Return the first record of a speed file.

    Args:
        kind: "kernels", "trainers" or "comparison".
        threads: that every library is given.
        quick: whether too few samples are taken to conclude anything.
        planned: how many rows the file will have.
        patience: seconds to wait for a quiet one.
    """
    import rlkernels
    from gates.results import machine, records, speed_records

    name, features = machine.cpu()
    commit, dirty = machine.commit()
    return speed_records.SpeedHeader(
        kind=kind,
        command=["gates", *sys.argv[1:]],
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        dirty=dirty,
        machine=records.Machine(system=platform.platform(), cpu=name, cores=machine.cores(), features=features),
        python=platform.python_version(),
        build=dict(rlkernels.build_info()),
        threads=threads,
        quick=quick,
        busy_percent=busy(patience),
        planned=planned,
    )


def writer(kind, *, record):
    """Return a writer of a new file in results/bench if it is recorded on purpose, else in results/runs."""
    from gates.results import jsonl

    return jsonl.Writer((RECORDED if record else RUNS) / jsonl.file_name(kind))


def busy(patience=1):
    """Return the share of the processors that others use, in percent, after waiting up to so many seconds for a quiet one."""
    import psutil

    for _ in range(max(patience, 1)):
        if (found := psutil.cpu_percent(1.0)) < QUIET_PERCENT:
            break
    return found
