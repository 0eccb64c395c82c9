"""Verifies and times every row and appends it to a speed file."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime

from benches.versus import timing
from benches.versus.rows import advantages, kl, logprobs, loss, overhead, packing, sampling

FAMILIES = (overhead, advantages, kl, logprobs, sampling, loss, packing)
DISTRIBUTIONS = ("numpy", "torch", "trl", "transformers", "rlox", "mlx", "mlx-lm", "pyarrow")
ROUNDS = 100  # at most; a row has the fewest, and its budget of time
QUIET_PERCENT, PATIENCE = 10.0, 20  # a smoke test does not wait: its times are no record
QUICK_ROUNDS, QUICK_BUDGET_S, QUICK_SAMPLE_S = 5, 1.0, 2e-5
BEST_ISA = "avx512"  # the goals are for this one; others owe half


def selected(options, families=FAMILIES):
    """The rows that were asked for."""
    rows = [row for family in families for row in family.rows()]
    if options.quick:
        rows = [row for row in rows if row.quick]
    if options.only:
        rows = [row for row in rows if any(all(word in row.name for word in words.split()) for words in options.only)]
    return rows


def run(options, families=FAMILIES, program="benches.versus"):
    """Time the rows of these families; returns the exit status."""
    rows = selected(options, families)
    if options.list or not rows:
        print(*(row.name for row in rows), sep="\n")
        return 0 if rows else 2
    import rlkernels

    build = rlkernels.build_info()
    if build["profile"] != "release":
        print(f"rlkernels is a {build['profile']} build, must be a release build: times of it mean nothing.")
        return 2
    if options.isa and build.get("isa", "") != options.isa:
        print(f"rlkernels runs on {build.get('isa', 'no instruction set that it names')}, must run on {options.isa}.")
        return 2
    from gates.results import jsonl, speed_records

    started = time.monotonic()
    writer = jsonl.Writer(options.out / jsonl.file_name("speed"))
    writer.write(_header(options, dict(build), len(rows), program))
    _write_roofline(writer, options, "before")
    share = 1.0 if build.get("isa", BEST_ISA) == BEST_ISA else 0.5
    counts, goals = {}, {}
    for batch in _together(rows):
        for row, record in zip(batch, _records(batch, quick=options.quick, share=share), strict=True):
            writer.write(record)
            counts[record.outcome] = counts.get(record.outcome, 0) + 1
            if record.goal_met:
                goals[record.goal_met] = goals.get(record.goal_met, 0) + 1
            print(_line(row, record), flush=True)
    if not options.quick:
        _write_roofline(writer, options, "after")
    seconds = round(time.monotonic() - started, 1)
    writer.write(speed_records.SpeedSummary(counts=counts, goals=goals, seconds=seconds))
    writer.close()
    print(f"{', '.join(f'{n} {name}' for name, n in counts.items())}; {seconds:g} s; {writer.path}")
    return int(bool({"wrong", "error"} & set(counts)))


def _header(options, build, planned, program):
    import numpy as np

    from gates.results import machine, records, speed_records

    name, features = machine.cpu()
    commit, dirty = machine.commit()
    if library := os.environ.get("LD_PRELOAD"):
        build["preloaded"] = library
    threads = {"every library": str(options.threads), "rlkernels": str(build.pop("threads", "?"))}
    if "torch" in sys.modules or importlib.util.find_spec("torch"):
        import torch

        torch.set_num_threads(options.threads)
        threads["torch"] = str(torch.get_num_threads())
    versions = {}
    for distribution in DISTRIBUTIONS:
        try:
            versions[distribution] = importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            versions[distribution] = "absent"
    versions["numpy"] = np.__version__
    return speed_records.SpeedHeader(
        command=["python", "-m", program, *sys.argv[1:]],
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=commit,
        dirty=dirty,
        machine=records.Machine(system=platform.platform(), cpu=name, cores=machine.cores(), features=features),
        python=platform.python_version(),
        build=build,
        isa=options.isa,
        versions=versions,
        threads=threads,
        quick=options.quick,
        busy_percent=_busy(1 if options.quick else PATIENCE),
        planned=planned,
    )


def _busy(patience):
    """Share of the processors that others use, in percent, after waiting for a quiet second for up to `patience`."""
    import psutil

    for _ in range(patience):
        if (busy := psutil.cpu_percent(1.0)) < QUIET_PERCENT:
            break
    else:
        print(f"The machine is busy ({busy:.0f}%): peers that wait for their threads look slower than they are.")
    return busy


def _write_roofline(writer, options, when):
    from gates.results import speed_records

    if options.roofline is None:
        return
    done = subprocess.run([options.roofline], capture_output=True, text=True, check=True)
    writer.write(speed_records.RooflineRecord(when=when, **json.loads(done.stdout)))


def _together(rows):
    """Rows that are timed in the same rounds, in order."""
    batch = []
    for row in rows:
        if batch and not (row.together and row.together == batch[-1].together):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _records(rows, *, quick, share):
    """The rows of one batch as their lines; whatever a peer does is an outcome of its row and never the end of the run."""
    from gates.results.speed_records import SpeedRecord

    names = ("op", "shape", "baseline", "reads", "writes", "flops", "precision", "roofline_goal")
    goals = [row.goal * share if row.goal is not None and row.baseline else row.goal for row in rows]
    found = _measured(rows, goals, quick=quick)
    return [
        SpeedRecord(**{name: getattr(row, name) for name in names}, goal=goal, **what)
        for row, goal, what in zip(rows, goals, found, strict=True)
    ]


class UnmeasuredError(Exception):
    """A row has no time; the message says why."""

    def __init__(self, outcome, message, evidence=()):
        super().__init__(message)
        self.outcome, self.evidence = outcome, evidence

    @property
    def found(self):
        """Return what its line says."""
        return {"outcome": self.outcome, "reason": str(self), "evidence": _lines(self.evidence)}


def _measured(rows, goals, *, quick):
    """What each row's line says beside its facts; our side is that of the first."""
    try:
        ours, evidence = _our_side(rows[0])
    except UnmeasuredError as stop:
        return [stop.found for _ in rows]
    others = [_other_side(row) for row in rows]
    right = [other for other in others if not isinstance(other, UnmeasuredError)]
    if not right:
        return [stop.found for stop in others]
    sides = [ours, *(side for side, _ in right if side), ours]  # ours again: the control
    first, *between, last = _samples(rows[0], sides, quick=quick)
    found = []
    for goal, other in zip(goals, others, strict=True):
        if isinstance(other, UnmeasuredError):
            found.append(other.found)
            continue
        side, more = other
        theirs = between.pop(0) if side else None
        found.append(_compared(goal, ours, side, (first, theirs, last)) | {"evidence": _lines(evidence + more)})
    return found


def _our_side(row):
    import rlkernels

    missing = [name for name in row.needs if not hasattr(rlkernels, name)]
    if missing:
        raise UnmeasuredError("unsupported", f"this rlkernels has no {', '.join(missing)}")
    return _verified(row.ours, "wrong")


def _other_side(row):
    """A baseline and its evidence, nothing for a row without one, or why it cannot be timed."""
    try:
        return _first_right(row) if row.baselines else (None, [])
    except UnmeasuredError as stop:
        return stop


def _samples(row, sides, *, quick):
    rounds = min(QUICK_ROUNDS if quick else ROUNDS, row.most_rounds)
    return timing.in_turns(
        [side.statement for side in sides],
        [side.names for side in sides],
        rounds=rounds,
        budget_s=QUICK_BUDGET_S if quick else row.budget_s,
        fewest=min(row.fewest_rounds, rounds),
        sample_s=QUICK_SAMPLE_S if quick else timing.SAMPLE_S,
    )


def _compared(goal, ours, theirs, samples):
    """Times, ratio and goal, of those rounds in which the other side took part."""
    rounds = (samples[1] or samples[0]).seconds.size
    first, other, last = (taken and taken.first(rounds) for taken in samples)
    found = {
        "outcome": "timed",
        "note": theirs.note if theirs else "",
        "rounds": rounds,
        "ours": _times(ours, first),
        "control": _interval(last, first),
    }
    if theirs:
        found |= {"theirs": _times(theirs, other), "ratio": _interval(other, first)}
        if goal is not None:
            noise = max(found["control"]["high"], 1.0 / found["control"]["low"])
            found["goal_met"] = timing.verdict(found["ratio"]["low"], found["ratio"]["high"], goal, noise)
    elif goal is not None:
        found["goal_met"] = "met" if found["ours"]["median_us"] <= goal else "missed"
    return found


def _verified(build, blame):
    """A side and its evidence, all of which holds."""
    absent = "baseline absent" if blame == "baseline wrong" else "error"
    try:
        side = build()
        evidence = side.verify(side.run())
    except ImportError as error:
        raise UnmeasuredError(absent, f"{type(error).__name__}: {error}") from error
    except TypeError as error:
        outcome = "unsupported" if "unexpected keyword" in str(error) else "error"
        raise UnmeasuredError(outcome, f"{type(error).__name__}: {error}") from error
    except Exception as error:  # a side may raise anything; it becomes this row's outcome
        raise UnmeasuredError("error", f"{type(error).__name__}: {error}") from error
    if failed := [item for item in evidence if not item.holds]:
        words = "; ".join(
            f"{item.quantity} is {item.observed:.6g}, must be {item.relation} {item.limit:g}" for item in failed
        )
        raise UnmeasuredError(blame, words, evidence)
    return side, list(evidence)


def _first_right(row):
    """The first of the baseline's alternatives that computes the op, and the evidence of all that were tried."""
    evidence = []
    for build in row.baselines:
        try:
            side, more = _verified(build, "baseline wrong")
        except UnmeasuredError as stop:
            evidence += stop.evidence
            last = stop
        else:
            return side, evidence + more
    raise UnmeasuredError(last.outcome, str(last), evidence)


def _lines(evidence):
    from gates.results.records import EvidenceRecord

    rest = {"where": "", "role": "claim"}
    return [EvidenceRecord(**dataclasses.asdict(item), **rest, holds=item.holds) for item in evidence]


def _times(side, samples):
    import numpy as np

    low, median, high = (float(value) for value in 1e6 * np.quantile(samples.seconds, (0.25, 0.5, 0.75)))
    least = float(1e6 * samples.seconds.min())
    return {
        "statement": side.statement,
        "calls": samples.calls,
        "median_us": median,
        "least_us": least,
        "quartile_range_us": high - low,
    }


def _interval(over, under):
    return dict(zip(("value", "low", "high"), timing.ratio(over.seconds, under.seconds), strict=True))


def _line(row, record):
    if record.outcome != "timed":
        return f"{row.name}: {record.outcome}: {record.reason}"
    words = f"{row.name}: ours {record.ours.median_us:.3g} µs"
    if record.ratio:
        words += f", theirs {record.theirs.median_us:.3g} µs, {record.ratio.value:.3g} times"
    return f"{words} (goal {record.goal:g} {record.goal_met})" if record.goal_met else words
