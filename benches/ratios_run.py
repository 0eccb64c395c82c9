"""Conduct `gates bench kernels`: select rows, measure them, write and print the records."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter

from . import ratios, rows
from .header import QUIET_PERCENT, header, writer
from .roofline import roofline

PROCESSES = 3  # processes of each peer in a recorded run
PATIENCE_S = 20  # longest wait for a quiet second before a recorded run
ATTEMPTS = 2  # most attempts at a recorded row while other processes are busy
BUSY = "others used {:.0f}% of the processors: what waits for its threads looks slower than it is; run again when it is quiet"


def run(*, targets, ops, shapes, quick, full, threads, processes, isa, record, as_json, require, only_list, echo):
    """Time rlkernels against its peers; return the exit code of the verb.

    Args:
        targets: names of peers; none for all.
        ops: names of ops; none for all.
        shapes: names of workloads; none for all of the chosen size.
        quick: a smoke test of the smallest shapes.
        full: also sizes that take minutes.
        threads: of rlkernels and every library.
        processes: of each peer; None for 1, or 3 if recorded.
        isa: forces an instruction set of rlkernels.
        record: write to results/bench.
        as_json: print records as JSON lines.
        require: targets with at least one timed row, or "all".
        only_list: print the rows and measure nothing.
        echo: prints a line; `echo(line, err=True)` one of progress.

    Raises:
        ConfigurationError: a name is unknown, or rlkernels cannot be timed with these options.
    """
    known = {name.lower(): name for name in _targets()}
    _require_known("--targets", targets, known)
    _require_known("--require", [name for name in require if name != "all"], known)
    _require_known("--op", ops, {row.op: row.op for row in rows.rows()})
    _require_known("--shape", shapes, {row.shape: row.shape for row in rows.rows()})
    chosen = rows.selected(targets, ops, shapes, quick=quick, full=full)
    if only_list:
        echo("\n".join(row.name for row in chosen))
        return 0 if chosen else 3
    build = _build(isa, threads)
    out = writer("kernels", record=record)
    head = header("kernels", threads=threads, quick=quick, planned=len(chosen), patience=PATIENCE_S if record else 1)
    out.write(head.model_copy(update={"build": build}))
    if head.busy_percent > QUIET_PERCENT:
        echo(BUSY.format(head.busy_percent), err=True)
    count = processes or (PROCESSES if record else 1)
    options = {"threads": threads, "quick": quick, "processes": count, "isa": isa}
    options["attempts"] = ATTEMPTS if record else 1
    with contextlib.closing(out):
        records = _measured(chosen, out, echo, as_json=as_json, **options)
    if not as_json:
        _print(out.path, chosen, targets, echo)
    return _status(records, chosen, require, echo)


def _targets():
    """Return every valid name of --targets: of rows, and of judged peers without rows."""
    from gates.subjects.peers import environments

    judged = [peer.name for peer in environments.peers().values() if peer.subject is not None]
    return list(dict.fromkeys([*(row.peer for row in rows.rows()), *judged]))


def _require_known(option, names, known):
    from gates.model import ConfigurationError
    from gates.nearest import hint

    for name in names:
        if name.lower() not in known:
            raise ConfigurationError(
                f"{option} {name}: must be one of {', '.join(known.values())}{hint(name, known.values())}"
            )


def _build(isa, threads):
    """Return rlkernels.build_info() of a new process with this instruction set.

    Raises:
        ConfigurationError: it is not a release build, or lacks this instruction set.
    """
    from gates.model import ConfigurationError

    code = "import json, rlkernels; print(json.dumps(rlkernels.build_info()))"
    variables = {**os.environ, "RLKERNELS_THREADS": str(threads), **({"RLKERNELS_ISA": isa} if isa else {})}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"rlkernels does not load: {done.stderr.strip().splitlines()[-1]}")
    build = json.loads(done.stdout)
    if build["profile"] != "release":
        raise ConfigurationError(f"rlkernels is a {build['profile']} build, must be a release build: run `make setup`")
    if isa and build["isa"] != isa:
        raise ConfigurationError(f"rlkernels runs on {build['isa']} here, must run on {isa}")
    return build


def _measured(chosen, out, echo, *, as_json, quick, **options):
    """Write every record at once and print it as a line of progress; an interrupted run keeps its records."""
    from gates.results.speed_records import SpeedSummary

    started, records = time.monotonic(), []
    _write_roofline(out, "before")
    with contextlib.closing(ratios.measure(chosen, quick=quick, **options)) as measured:
        try:
            for record in measured:
                out.write(record)
                records.append(record)
                echo(f"{len(records)}/{len(chosen)} {_line(record)}", err=True)
                if as_json:
                    echo(record.model_dump_json())
        except KeyboardInterrupt:
            echo(f"{len(records)} of {len(chosen)} rows are kept in {out.path}", err=True)
            raise
    if not quick:
        _write_roofline(out, "after")
    counts = Counter(record.outcome for record in records)
    seconds = round(time.monotonic() - started, 1)
    out.write(SpeedSummary(counts=dict(counts), absent=_absent(records), seconds=seconds))
    return records


def _write_roofline(out, when):
    if (rates := roofline(when)) is not None:
        out.write(rates)


def _absent(records):
    """Return the peers whose rows are all absent."""
    outcomes = {}
    for record in records:
        outcomes.setdefault(record.peer, set()).add(record.outcome)
    return sorted(peer for peer, seen in outcomes.items() if seen == {"absent"})


def _line(record):
    name = " ".join(part for part in (record.peer, record.op, record.variant, record.shape) if part)
    if record.ratio is None:
        return f"{name}: {record.outcome}: {record.reason}"
    return f"{name}: {record.ratio.value:.3g} times, ours {record.ours.median_us:.3g} µs"


def _print(path, chosen, targets, echo):
    from gates.report.speed.screen import render_screen
    from gates.results.speed_file import read_speed

    echo(render_screen([read_speed(path)]).rstrip())
    wanted = {name.lower() for name in targets}
    planned = {row.peer for row in rows.rows()}
    nothing = [name for name in _targets() if name not in planned and (not wanted or name.lower() in wanted)]
    if nothing:
        echo(f"nothing to time: {', '.join(nothing)} (its adapter has none of these ops)")
    echo(f"{len(chosen)} rows; written to {path}")


def _status(records, chosen, require, echo):
    """Return 1 if ours is wrong or a required target is not timed, 3 if nothing was timed, else 0."""
    timed = {name for record in records if record.outcome == "timed" for name in _names(record.peer)}
    wanted = {row.peer for row in chosen} if "all" in require else set(require)
    missing = sorted(name for name in wanted if name.lower() not in timed)
    for name in missing:
        echo(f"required, but not timed: {name}", err=True)
    if missing or any(record.outcome == "wrong" for record in records):
        return 1
    return 0 if timed else 3


def _names(peer):
    return {peer.lower(), peer.lower().partition("@")[0]}
