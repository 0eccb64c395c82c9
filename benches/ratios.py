"""Ratios of rlkernels to its peers: start a worker in each peer's interpreter, verify both sides, time them alternately.

The judge's half; `worker` is the other. A peer that is absent, wrong or crashes is an outcome of its rows and does not end
the run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import groupby
from pathlib import Path

import numpy as np
import psutil

from . import limits
from .header import QUIET_PERCENT
from .rows import PLAIN, PLAIN_VARIANTS
from .timing import SAMPLE_S, control_ratio, paired_ratio

HERE = Path(__file__).resolve().parent
CONFORMANCE = HERE.parent / "results" / "conformance"
#: Sampling of a row in one process; see `timing.in_turns`.
QUICK = {"rounds": 4, "fewest": 2, "budget_s": 0.5, "sample_s": 2e-5}
DEFAULT = {"rounds": 10, "fewest": 4, "budget_s": 0.8, "sample_s": SAMPLE_S}
PREPARE_S, SAMPLE_LIMIT_S = 600.0, 900.0  # compilation takes a minute, packing a million sequences several


class UnmeasuredError(Exception):
    """A row cannot be timed; the message has the reason."""

    def __init__(self, outcome, message, evidence=()):
        super().__init__(message)
        self.outcome, self.evidence = outcome, evidence


def measure(rows, *, threads, quick=False, processes=1, isa="", attempts=1, on_row=lambda _: None):
    """Time rows, one peer after the other.

    Args:
        rows: of `rows.selected`, those of one peer together.
        threads: of rlkernels and of every library.
        quick: a smoke test: too few samples to conclude anything.
        processes: workers of each peer; the pairs of all count, so that memory layout and hash seeds vary.
        isa: forces an instruction set of rlkernels.
        attempts: most attempts at a row while other processes are busy; the quietest one counts.
        on_row: called with each row before it is measured.

    Yields:
        A `SpeedRecord` for each row, in order.
    """
    with tempfile.TemporaryDirectory() as folder:
        site = _link(Path(folder))
        for peer, group in groupby(rows, key=lambda row: row.peer):
            with contextlib.closing(Crew(peer, site, threads=threads, processes=processes, isa=isa)) as crew:
                for row in group:
                    on_row(row)
                    yield _record(row, crew, QUICK if quick else DEFAULT, attempts)


def _link(folder):
    """Make only the installed rlkernels importable from a folder."""
    spec = importlib.util.find_spec("rlkernels")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("rlkernels is not installed here: run `make setup`")
    (folder / "rlkernels").symlink_to(Path(spec.origin).parent)
    return folder


class Crew:
    """The workers of one peer, started with the first row and restarted after one has ended."""

    def __init__(self, peer, site, *, threads, processes, isa):
        self.peer, self.threads, self.processes = peer, threads, processes
        self._site, self._isa, self._workers, self._failed = site, isa, [], None

    def workers(self):
        """Return running workers.

        Raises:
            UnmeasuredError: a worker does not start; there is no second attempt.
        """
        from gates.worker.process import Worker, WorkerError

        if self._failed is not None:
            raise self._failed
        alive = [worker for worker in self._workers if worker.alive]
        try:
            subject = _subject(self.peer, self._site, threads=self.threads, isa=self._isa)
            with ThreadPoolExecutor() as pool:
                start = partial(Worker.start, subject, threads=self.threads)
                futures = [pool.submit(start) for _ in range(self.processes - len(alive))]
            self._workers = [*alive, *(future.result() for future in futures if future.exception() is None)]
            for future in futures:
                future.result()
        except UnmeasuredError as stop:
            self._failed = stop
            raise
        except WorkerError as error:
            self._failed = UnmeasuredError("absent" if error.kind == "absent" else "error", str(error))
            raise self._failed from None
        return self._workers

    def close(self):
        """End all workers."""
        for worker in self._workers:
            worker.close()


def _subject(peer, site, *, threads, isa):
    """Return the worker's subject: the peer's interpreter, its adapter or a plain formula, and the thread counts."""
    from gates.model import Subject

    name, _, variant = peer.partition("@")
    file, environment_of = PLAIN.get(name, ("", name))
    settings = PLAIN_VARIANTS.get(variant, {})
    if environment_of:
        from gates.subjects.peers import environments

        environment = environments.environment(environment_of)
        if not environment.ready:
            raise UnmeasuredError("absent", f"no environment yet; `gates peers sync {environment_of}` makes it")
        peers = environments.peers()
        adapter, python = peers[environment_of].subject, str(environment.python)
        settings = peers[environment_of].variants[variant][1] if variant and not file else settings
    else:
        adapter, python = None, sys.executable
    variables = {"RLKERNELS_THREADS": str(threads), "GATES_TIMED": "1"}
    return Subject(
        peer,
        HERE / "worker.py",
        "gates_bench_worker",
        python=python,
        settings={
            "adapter": str(HERE / "plain" / f"{file}.py" if file else adapter),
            "site": str(site),
            "threads": threads,
            "settings": dict(settings),
        },
        environment={**variables, **({"RLKERNELS_ISA": isa} if isa else {})},
    )


def _record(row, crew, sampling, attempts):
    """Return the record of one row."""
    from gates.results.speed_records import SpeedRecord

    facts = {name: getattr(row, name) for name in ("op", "variant", "shape", "peer", "reads", "writes", "flops")}
    facts |= {"precision": row.dtype, "conformance": grades(row.peer).get(row.grade, ""), "threads": crew.threads}
    try:
        measured = _measured(row, crew, sampling, attempts)
    except UnmeasuredError as stop:
        measured = {"outcome": stop.outcome, "reason": str(stop), "evidence": _lines(stop.evidence)}
    return SpeedRecord(**facts, **measured)


def _measured(row, crew, sampling, attempts):
    workers = crew.workers()
    evidence, taken, busy = [], [], []
    for worker in workers:
        answer = _called(worker, "prepare", PREPARE_S, **_request(row))
        seen = _verified(row, answer)
        evidence = evidence or seen
        sample, others = _sampled(worker, sampling, attempts)
        taken.append(sample)
        busy.append(others)
    ours, theirs = (np.concatenate([sample[side] for sample in taken]) for side in ("ours", "theirs"))
    return {
        "outcome": "timed",
        "note": answer["note"],
        "versions": dict(workers[0].hello.versions),
        "isa": answer["isa"],
        "busy_percent": round(max(busy), 1),
        "evidence": _lines(evidence),
        "pairs": len(ours),
        "processes": len(workers),
        "ours": _times(answer["ours_statement"], taken[0]["our_calls"], ours),
        "theirs": _times(answer["theirs_statement"], taken[0]["their_calls"], theirs),
        "ratio": _interval(paired_ratio(theirs, ours)),
        "control": _interval(control_ratio(ours)),
    }


def _sampled(worker, sampling, attempts):
    """Return the samples of the quietest attempt, and the load of other processes meanwhile in percent."""
    best = None
    for _ in range(attempts):
        before = _used(worker)
        sample = _called(worker, "sample", SAMPLE_LIMIT_S, **sampling)
        everyone, ours, then = (after - start for after, start in zip(_used(worker), before, strict=True))
        others = max(0.0, 100.0 * (everyone - ours) / (then * psutil.cpu_count()))
        if best is None or others < best[1]:
            best = sample, others
        if others < QUIET_PERCENT:
            break
    return best


def _used(worker):
    """Return the processor seconds of all processes and of this worker, and the time."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    total = sum(times[:8]) - idle  # later fields are included in the first ones
    mine = psutil.Process(worker.process.pid).cpu_times()
    return total, mine.user + mine.system, time.monotonic()


def _request(row):
    return {"op": row.op, "shape": row.shape, "dtype": row.dtype, "conventions": dict(row.conventions)}


def _called(worker, op, limit_s, /, **inputs):
    """Return the answer of a worker.

    Raises:
        UnmeasuredError: it crashed, raised, or lacks the op; the message is the worker's.
    """
    result = worker.call(op, inputs, limit_s=limit_s)
    if result.kind == "value":
        return result.value
    outcome = "unsupported" if result.kind == "unsupported" else "error"
    message = f"{result.kind}: {result.error}" if result.kind in {"crashed", "timeout"} else result.error
    raise UnmeasuredError(outcome, message)


def _verified(row, answers):
    """Return the evidence of both sides, all of which holds.

    Raises:
        UnmeasuredError: a side is wrong; rlkernels is checked first.
    """
    evidence = []
    for side, outcome in (("ours", "wrong"), ("theirs", "peer wrong")):
        try:
            evidence += limits.verify(row, side, answers[side])
        except (KeyError, ValueError, IndexError, TypeError) as error:  # the output cannot be compared
            message = f"{side}: {type(error).__name__}: {error}"
            raise UnmeasuredError(outcome, message, evidence) from error
        if failed := [item for item in evidence if not item.holds]:
            message = "; ".join(f"{x.quantity} is {x.observed:.6g}, must be {x.relation} {x.limit:g}" for x in failed)
            raise UnmeasuredError(outcome, message, evidence)
    return evidence


def _lines(evidence):
    from gates.results.records import EvidenceRecord

    names = ("quantity", "observed", "relation", "limit", "because", "holds")
    return [EvidenceRecord(**{n: getattr(item, n) for n in names}, where="", role="claim") for item in evidence]


def _times(statement, calls, seconds):
    low, median = (float(value) for value in 1e6 * np.quantile(seconds, (0.1, 0.5)))
    return {"statement": statement, "calls": int(calls), "median_us": median, "low_us": low}


def _interval(ratio):
    return {"value": ratio.value, "low": ratio.low, "high": ratio.high}


@cache
def grades(peer):
    """Return the grades of a peer or variant by op from results/conformance; empty if it was never judged.

    A preset that was judged only as another composition ("grpo, no bound") has the grade `differs`.
    """
    from gates.results.conformance_records import read_conformance

    path = CONFORMANCE / f"{peer.partition('@')[0]}.jsonl"
    if not path.is_file():
        return {}
    lines = read_conformance(path).grades
    composed = [line.op.partition(", ")[0] for line in lines if line.op.startswith("policy_loss[") and ", " in line.op]
    own = {line.op: line.grade for line in lines if line.subject == peer}
    return ({} if "@" in peer else {f"{op}]": "differs" for op in composed}) | own
