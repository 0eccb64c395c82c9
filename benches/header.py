"""The header and the path of a speed file."""

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
        threads: of every library.
        quick: whether the samples are too few for conclusions.
        planned: number of rows of the complete file.
        patience: seconds to wait for a quiet second.
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
    """Return a writer of a new file in results/bench with `record`, else in results/runs."""
    from gates.results import jsonl

    return jsonl.Writer((RECORDED if record else RUNS) / jsonl.file_name(kind))


def busy(patience=1):
    """Return the load of other processes in percent, after waiting at most `patience` seconds for a quiet one."""
    import psutil

    for _ in range(max(patience, 1)):
        if (load := psutil.cpu_percent(1.0)) < QUIET_PERCENT:
            break
    return load
