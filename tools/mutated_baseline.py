"""Build the NumPy baseline with one mutation, judge the gates' cases, and compare it with the original on other inputs."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import traceback
import types
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from small_mutations import Mutation

from gates.families.sampling.gates.draws import admitted_tokens
from gates.model import GRADES, Op, Outcome, Status
from gates.run import judge as judging
from gates.run.compare import worst_claimed
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase
from gates.subjects import numpy_baseline
from gates.worker import worker
from gates.worker.process import Hello
from gates_reference.oracle import sampling as oracle

FOLDER = Path(numpy_baseline.__file__).parent
MODULES = (  # in the order of imports
    "arguments",
    "terms",
    "logprobs",
    "ratio",
    "kl",
    "advantages",
    "loss",
    "packing",
    "preference",
    "sampling",
    "subject",
)
LIMIT_S = 240  # for one mutation: cases take seconds, ten thousand inputs a minute
CAUGHT: frozenset[Status] = frozenset(GRADES[1:])
FOUND = "found-"  # prefix of the cases that this search found
GROSS = 1e-3  # relative difference that is compared with its limit at once
NEAREST = 40  # number of smaller differences, largest first, compared with their limits
LOOSE = {"loss_of_completions": 2.0**-18}  # limit relative to Σ|values|; other ops without textbook limits are exact
ANSWERS = OracleCache(kept=4 << 30, largest=64 << 20)  # the oracle's results of all cases, shared by forks

Operations = Mapping[str, Callable[..., Any]]


def operations(module: str = "", tree: ast.Module | None = None) -> Operations:
    """Rebuild the baseline's ops, optionally with a mutated module."""
    for name in MODULES:
        rebuilt = types.ModuleType(f"{numpy_baseline.__name__}.{name}")
        rebuilt.__file__ = str(FOLDER / f"{name}.py")
        sys.modules[rebuilt.__name__] = rebuilt
        setattr(numpy_baseline, name, rebuilt)
        mutated = name == module and tree is not None
        code = compile(tree, rebuilt.__file__, "exec") if mutated else compiled(name)
        exec(code, rebuilt.__dict__)  # noqa: S102  source of this repository
    ops: Operations = sys.modules[f"{numpy_baseline.__name__}.subject"].OPS
    return ops


@cache
def compiled(name: str) -> types.CodeType:
    """Return the compiled code of an unmutated module of the baseline."""
    path = FOLDER / f"{name}.py"
    return compile(path.read_text(), str(path), "exec")


def importers(module: str) -> set[str]:
    """Return a module of the baseline and the modules that import it."""
    modules = {module}
    for name in MODULES[:-1]:  # the last module imports all
        text = (FOLDER / f"{name}.py").read_text()
        imported = {
            alias.name
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom) and node.module == numpy_baseline.__name__
            for alias in node.names
        }
        if imported & modules:
            modules.add(name)
    return set(MODULES) if module in {"arguments", "subject"} else modules


def ops_of(module: str) -> list[str]:
    """Return the ops that may use a module."""
    modules = [sys.modules[f"{numpy_baseline.__name__}.{name}"] for name in importers(module) if name != "subject"]
    return [op for op in operations() if any(hasattr(candidate, op) for candidate in modules)]


def status(job: PlannedCase, ops: Operations, hello: Hello, options: Options) -> Status:
    """Return the status of one case."""

    def call(op: str, inputs: Mapping[str, Any], layout: Mapping[str, str], _kill_after_s: float | None) -> Outcome:
        arguments = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in inputs.items()}
        answer = worker._answer(ops.get(op), {"op": op, "layout": dict(layout), "inputs": arguments})  # noqa: SLF001
        if answer["kind"] != "value":
            return Outcome(answer["kind"], error=answer["error"])
        try:
            value = {k: v if isinstance(v, list) else np.asarray(v) for k, v in answer["value"].items()}
        except ValueError as error:  # the value cannot be sent through a pipe
            return Outcome("raised", error=str(error))
        return Outcome("value", value)

    return judging.judge(job, call, hello, options, ANSWERS).status


def traced(run: Callable[[], Any]) -> tuple[Any, frozenset[tuple[str, str]]]:
    """Return the result of a call, and the modules and functions of the baseline that it ran."""
    seen: set[tuple[str, str]] = set()

    def note(frame: types.FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(FOLDER)):
            seen.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        result = run()
    finally:
        sys.setprofile(None)
    return result, frozenset(seen)


@dataclass(frozen=True, slots=True)
class Sample:
    """One valid input outside the cases, with the original's outputs."""

    op: str
    number: int
    levels: Mapping[str, str]  # the level of each factor
    inputs: Mapping[str, Any]
    wanted: Mapping[str, Any]
    functions: frozenset[tuple[str, str]]


@dataclass(slots=True)
class Answer:
    """The result of one mutation."""

    verdict: str  # "caught", "found" or "equivalent"
    by: str = ""  # the gate and case that catch it
    inputs: int = 0  # number of compared inputs outside the cases
    where: dict[str, Any] = field(default_factory=dict)  # op, number and levels of the revealing input

    def __post_init__(self) -> None:
        if self.verdict not in {"caught", "found", "equivalent"}:
            raise ValueError(f"the verdict is {self.verdict!r}, must be caught, found or equivalent")


def ordered(cases: Iterable[PlannedCase]) -> list[PlannedCase]:
    """Return the cases in the order in which they are judged, the cheapest and most effective first.

    Quick cases come first, in turns of one per gate; cases found by the search come last, so that mutations caught by these
    are known to escape all others.
    """
    places: dict[str, int] = {}
    order = []
    for job in sorted(cases, key=lambda job: not job.case.quick):
        places[job.gate.id] = places.get(job.gate.id, 0) + 1
        order.append((job.case.name.startswith(FOUND), not job.case.quick, places[job.gate.id], len(order), job))
    return [job for *_, job in sorted(order, key=lambda entry: entry[:4])]


def differs(ops: Sequence[Op], sample: Sample, got: Mapping[str, Any]) -> bool:
    """Whether outputs differ from the original's by more than the textbook limits, or at all without limits."""
    op = next((op for op in ops if sample.wanted.keys() <= op.outputs.keys()), ops[0])
    inputs = {name: x for name, x in sample.inputs.items() if name != "entropy"}  # it only selects the op
    limits = {} if op.textbook is None else op.textbook(**inputs)
    loose = LOOSE.get(sample.op, 0.0) * sum(float(np.abs(x).sum()) for x in sample.wanted.values())
    if sample.op == "sample_tokens":
        return draws_differ(sample, got, limits)
    for name, want in sample.wanted.items():
        a, b = np.asarray(want, np.float64), np.asarray(got[name], np.float64)
        if a.shape != b.shape:
            return True
        if a.size and not np.array_equal(a, b, equal_nan=True):
            limit = np.asarray(limits.get(name, loose))
            limit = limit.max(axis=-1) if limit.ndim > a.ndim else limit  # limits of all ids where one was drawn
            observed, _, claimed = worst_claimed(b, a, limit)
            if claimed and not observed <= 1.0:
                return True
    return False


def draws_differ(sample: Sample, got: Mapping[str, Any], limits: Mapping[str, Any]) -> bool:
    """Whether draws differ by more than rounding explains, given limits of the filtered log-probs."""
    filters = {name: x for name, x in sample.inputs.items() if name != "uniforms"}
    filtered, rows = oracle.filtered_logprobs(**filters), np.arange(len(sample.wanted["tokens"]))
    decided = ~np.isinf(limits["logprobs"]).any(axis=-1)
    admitted = admitted_tokens(filtered, limits["sums"], sample.inputs["uniforms"], rows)
    tokens = np.asarray(got["tokens"], np.int64)
    if not np.all((tokens >= 0) & (tokens < filtered.shape[1])):
        return True
    observed, _, claimed = worst_claimed(
        np.asarray(got["logprobs"], np.float64)[decided],
        filtered[rows, tokens][decided],
        limits["logprobs"][rows, tokens][decided],
    )
    return bool(np.any(decided & ~admitted[rows, tokens])) or (bool(claimed) and not observed <= 1.0)


def size_of(want: Any, got: Any) -> float:
    """Return the largest relative difference, at most 2; NaN on one side counts as 2."""
    with np.errstate(all="ignore"):
        share = np.abs(got - want) / np.maximum(np.abs(want), np.abs(got))
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return float(np.max(np.where(same, 0.0, np.where(np.isnan(share), 2.0, share)), initial=0.0))


def rounded(got: Any, want: Any) -> Any:
    """Return an output as float64 after rounding to the original's dtype, since more precision is not a mistake."""
    like = np.asarray(want).dtype
    return np.asarray(np.asarray(got).astype(like) if like.kind == "f" else got, np.float64)


def search(
    samples: Sequence[Sample], ops: Operations, declared: Mapping[str, Sequence[Op]]
) -> tuple[int, Sample | None]:
    """Return the number of compared inputs, and the first one on which mutated and original ops differ.

    Gross differences are compared with their textbook limits at once, then the `NEAREST` largest of the others.
    """
    small: list[tuple[float, Sample, Mapping[str, Any]]] = []
    for number, sample in enumerate(samples, 1):
        arguments = {name: x.copy() if isinstance(x, np.ndarray) else x for name, x in sample.inputs.items()}
        try:
            outputs = ops[sample.op](**arguments)
            got = {name: rounded(outputs[name], want) for name, want in sample.wanted.items()}
        except Exception:  # noqa: BLE001  the original does not raise here
            return number, sample
        if any(got[name].shape != np.shape(want) for name, want in sample.wanted.items()):
            return number, sample
        size = max(size_of(np.asarray(want, np.float64), got[name]) for name, want in sample.wanted.items())
        if size > GROSS and differs(declared[sample.op], sample, got):
            return number, sample
        if 0.0 < size <= GROSS:
            small.append((size, sample, got))
    small.sort(key=lambda entry: -entry[0])
    for _, sample, got in small[:NEAREST]:
        if differs(declared[sample.op], sample, got):
            return len(samples), sample
    return len(samples), None


def tried(
    mutation: Mutation,
    module: str,
    cases: Sequence[PlannedCase],
    samples: Sequence[Sample],
    declared: Mapping[str, Sequence[Op]],
    hello: Hello,
    options: Options,
) -> Answer:
    """Judge the cases with a mutation, then search the other inputs; a mutation that fails to load or end is caught."""

    def answer() -> Answer:
        try:
            ops = operations(module, mutation.tree)
        except Exception:  # noqa: BLE001  a mutated module may raise anything
            return Answer("caught", "does not load")
        for job in cases:
            if status(job, ops, hello, options) in CAUGHT:
                return Answer("caught", f"{job.gate.id} · {job.case.name}")
        number, where = search(samples, ops, declared)
        if where is None:
            return Answer("equivalent", inputs=number)
        return Answer("found", "", number, {"op": where.op, "number": where.number, "levels": dict(where.levels)})

    text = in_fork(lambda: json.dumps(asdict(answer())), LIMIT_S)
    return Answer(**json.loads(text)) if text else Answer("caught", "does not end")


def in_fork(make: Callable[[], str], limit_s: float) -> str:
    """Return the text that a fork of this process makes, or "" after the limit of processor time.

    Raises:
        RuntimeError: the fork raised, which is an error of this tool.
    """
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        with os.fdopen(read) as pipe:
            text = pipe.read()
        _, ended = os.waitpid(child, 0)
        if os.WIFEXITED(ended) and os.WEXITSTATUS(ended):
            raise RuntimeError(text)
        return text
    failed = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C between two mutations
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        warnings.simplefilter("ignore")
        text, failed = make(), 0
    except BaseException:  # noqa: BLE001  reported to the parent
        text = traceback.format_exc()
    with os.fdopen(write, "w") as pipe:
        pipe.write(text)
    os._exit(failed)
