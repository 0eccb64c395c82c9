"""The `Trial` that a running check sees: `got` calls the worker, `want` the oracle, `within` compares them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from gates.model import (
    IN_FLOAT32,
    IN_LIMITS,
    Array,
    Case,
    Evidence,
    Gate,
    Level,
    Op,
    Outcome,
    Output,
    Recipe,
    Relation,
    Role,
    SubjectFaultError,
    UnsupportedError,
    Wire,
    precondition,
)
from gates.provided import NEUTRAL, Provided, asks
from gates.run.compare import worst, worst_claimed
from gates.run.oracle_cache import OracleCache

UNEXPECTED = re.compile(r"^TypeError: .*unexpected keyword argument '(\w+)'")  # read only where no signature is known
TEXTBOOK = (
    "derived: twice the running error bound of a careful program in the dtype of the data, the widest of its usual forms, "
    "and the oracle's own rounding"
)
TEXTBOOK_IN_FLOAT32 = (
    f"derived: {IN_FLOAT32}: twice the running error bound of a careful program that casts these inputs to float32, the widest "
    "of its usual forms"
)
Caller = Callable[[str, Mapping[str, Wire | Recipe], Mapping[str, str], float | None], Outcome]
RESIDUE = 2.0**-24  # of the largest number of an array
FAR_OFF = 1e-3  # of an ordinary value, or of a larger one
CHOICES = frozenset(  # inputs that a subject may declare instead
    ("kl_estimator", "kl_ratio", "dapo_denominator", "cispo_bound", "ddof", "eps", "eps_mode", "reduction")
)
VALUE = "_value"  # ends the name of a result of the textbook program, which is no limit
Once = Callable[[str, Mapping[str, Wire | Recipe], Callable[[], Outcome]], Outcome]


class OracleError(Exception):
    """The oracle raised, which is an error of Gates."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One elementwise comparison, with its operands."""

    evidence: Evidence
    got: Wire
    want: Wire
    scale: Wire


class Scratch:
    """A temporary folder for one trial, created at first use, because most checks need none."""

    def __init__(self) -> None:
        self._made: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._made is not None:
            self._made.cleanup()

    @property
    def path(self) -> Path:
        """The folder, created if need be."""
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="gates-")
        return Path(self._made.name)


@dataclass(slots=True)
class RunningDraw:
    """The `Draw` that preconditions are measured on."""

    inputs: Mapping[str, Any]
    cached: OracleCache

    def want(self, op: Op, **inputs: Wire) -> Any:
        """Return what the oracle computes."""
        if op.oracle is None:
            raise OracleError(f"{op.name} has no oracle")
        try:
            return self.cached.ask(op, inputs)
        except Exception as error:
            raise OracleError(f"the oracle of {op.name} raised {type(error).__name__}: {error}") from error

    def textbook(self, op: Op, **inputs: Wire) -> Mapping[str, Array]:
        """Return the textbook limits of each output, element by element; inf where no claim can be made."""
        if op.textbook is None:
            raise OracleError(f"{op.name} has no textbook program")
        try:
            by_output: Mapping[str, Array] = self.cached.limits(op, inputs)
        except Exception as error:
            raise OracleError(f"the textbook program of {op.name} raised {type(error).__name__}: {error}") from error
        return by_output

    def precondition(self, name: str, value: float, relation: Relation, limit: float, because: str = "") -> Evidence:
        """State a condition without which the check means nothing."""
        return precondition(name, value, relation, limit, because)


@dataclass(slots=True)
class RunningTrial(RunningDraw):
    """The `Trial` of one gate × subject × case."""

    gate: Gate
    case: Case
    caller: Caller
    scratch: Scratch
    quick: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)
    gave: set[str] = field(default_factory=set)  # the inputs that a call gave another value than their neutral one
    provides: Mapping[str, Provided] = field(default_factory=dict)  # the subject's handshake, by op
    once: Once | None = None  # answers calls that were made before, for `got_once`; None: every call runs
    in_float32: bool = False  # whether textbook limits are those of float32 arithmetic where these are wider

    @property
    def folder(self) -> Path:
        """A scratch folder of this trial."""
        return self.scratch.path

    def textbook(self, op: Op, **inputs: Wire) -> Mapping[str, Array]:
        """Return the textbook limits of each output; see `RunningDraw.textbook`.

        In float32 an element that may overflow keeps the limit of the data's dtype.
        """
        limits = RunningDraw.textbook(self, op, **inputs)
        if not self.in_float32:
            return limits
        try:
            narrow: Mapping[str, Array] = self.cached.limits_in_float32(op, inputs)
        except Exception as error:
            raise OracleError(f"the textbook program of {op.name} raised {type(error).__name__}: {error}") from error
        return {
            name: limit
            if name.endswith(VALUE)
            else np.where(np.isinf(narrow[name]), limit, np.fmax(narrow[name], limit))
            for name, limit in limits.items()
        }

    def call(
        self,
        op: Op,
        *,
        layout: Mapping[str, str] | None = None,
        kill_after_s: float | None = None,
        **inputs: Wire,
    ) -> Outcome:
        """Run an op in the worker and return the outcome; `kill_after_s` kills the worker in mid-call.

        Raises:
            UnsupportedError: the subject answers `unsupported`, or its function lacks an optional argument that this call
                sets to something else than None; neither is a failure.
        """
        provided = self._provided(op)
        given = {name: value for name, value in inputs.items() if not provided.omits(name, inputs)}
        self.gave |= {name for name in given if name in NEUTRAL and asks(name, given[name])}
        if lacked := [name for name in given if (name in op.optional or name in NEUTRAL) and provided.lacks(name)]:
            raise UnsupportedError(_declined(op, lacked[0], given[lacked[0]]), lacked[0])
        outcome = self.caller(op.name, given, layout or {}, kill_after_s)
        if outcome.kind == "unsupported":
            raise UnsupportedError(outcome.error)
        return outcome

    def got(self, op: Op, *, layout: Mapping[str, str] | None = None, **inputs: Wire) -> dict[str, Any]:
        """Run an op and return its outputs, which must have the declared shape and dtype."""
        return self.checked(op, self.call(op, layout=layout, **inputs), inputs)

    def got_once(self, op: Op, *, instead: Mapping[str, Wire] | None = None, **inputs: Wire) -> dict[str, Any]:
        """Return what `got` does, but call the subject only once a run for equal inputs."""
        call = partial(self.call, op, **inputs)
        outcome = self.once(op.name, {**inputs, **(instead or {})}, call) if self.once else call()
        return self.checked(op, outcome, inputs)

    def checked(self, op: Op, outcome: Outcome, inputs: Mapping[str, Wire]) -> dict[str, Any]:
        """Return the outputs of a call, which must have the declared shape and dtype."""
        if outcome.kind != "value":
            own = outcome.error.startswith(f"{op.name} ")  # the worker's own sentence
            reason = outcome.error if own else f"{op.name} {outcome.kind}: {outcome.error}"
            raise SubjectFaultError(outcome.kind, reason + self._missing(op, outcome, inputs))
        for name, output in op.outputs.items():
            if name not in outcome.value:
                raise SubjectFaultError("shape", f"{op.name} returned {sorted(outcome.value)}, must have {name!r}")
            if problem := _misfit(outcome.value[name], output, inputs):
                raise SubjectFaultError("shape", f"{op.name}.{name} {problem}")
        return {name: _as_array(value, op.outputs.get(name)) for name, value in outcome.value.items()}

    def _provided(self, op: Op) -> Provided:
        return self.provides.get(op.name) or Provided(op.name)

    def _missing(self, op: Op, outcome: Outcome, inputs: Mapping[str, Wire]) -> str:
        """Return a clause on the required argument that the subject's function lacks and that made it raise, or "".

        Raises:
            UnsupportedError: a callable without a signature, or a program that names no arguments, refuses an optional
                argument in the words of Python.
        """
        provided = self._provided(op)
        if outcome.kind != "raised":
            return ""
        unexpected = UNEXPECTED.search(outcome.error) if provided.arguments == () else None
        if unexpected and unexpected[1] in op.optional:
            raise UnsupportedError(_declined(op, unexpected[1], inputs.get(unexpected[1])))
        lacked = [name for name in inputs if provided.lacks(name) and not provided.omits(name, inputs)]
        if not lacked:
            return ""
        described = f" ({op.inputs[lacked[0]]})" if lacked[0] in op.inputs else ""
        return f"; it has no argument `{lacked[0]}`{described}, which {op.name} is given: `gates ops {op.name}`"

    def agrees(
        self, quantity: str, got: Wire, want: Wire, limits: Wire, *, scale: Wire | None = None, where: str = ""
    ) -> Iterator[Evidence]:
        """Compare elementwise with textbook limits; with `scale` also `within`, the claim of full precision.

        The first claim replaces the unit of the quantity: `kl error in 2u·S (float32)` becomes `kl error in textbook limits`.
        Elements without a limit are left out; if no element has one, a precondition fails instead.
        """
        self._comparable(quantity, got, want)
        observed, location, claimed = worst_claimed(got, want, limits)
        level = self.level
        if level in {"definition", "robustness"} and _is_residue(got, want, limits):
            level = "precision"
        claim = Evidence(
            f"{quantity.partition(' in ')[0]} {IN_LIMITS}",
            observed,
            "<=",
            1.0,
            TEXTBOOK_IN_FLOAT32 if self.in_float32 else TEXTBOOK,
            ", ".join(part for part in (where, location) if part),
            level=level,
        )
        if not claimed:
            claim = self.precondition(f"elements with a textbook limit ({quantity})", 0, ">=", 1)
        else:
            self.comparisons.append(Comparison(claim, got, want, limits))
        yield claim
        if scale is not None:
            yield self.within(quantity, got, want, scale=scale, where=where)

    def _comparable(self, quantity: str, got: Wire, want: Wire) -> None:
        if np.asarray(got).dtype.kind not in "fiub":
            raise SubjectFaultError("shape", f"{quantity}: dtype {np.asarray(got).dtype}, must hold numbers")
        if np.shape(got) != np.shape(want):
            raise SubjectFaultError("shape", f"{quantity}: shape {np.shape(got)}, must be {np.shape(want)}")

    def within(
        self, quantity: str, got: Wire, want: Wire, *, scale: Wire = 1.0, role: Role = "claim", where: str = ""
    ) -> Evidence:
        """Compare elementwise with the limit of `bounds[quantity]`."""
        self._comparable(quantity, got, want)
        observed, location = worst(got, want, scale)
        where = ", ".join(part for part in (where, location) if part)
        limit, because = self._limit(quantity)
        level = self._level(quantity)
        if level == "precision" and _far_off(got, want):
            level = "robustness"
        claim = Evidence(quantity, observed, "<=", limit, because, where, role, level)
        self.comparisons.append(Comparison(claim, got, want, scale))
        return claim

    def number(self, quantity: str, value: float, relation: Relation, *, where: str = "") -> Evidence:
        """Compare one number with the limit of `bounds[quantity]`."""
        limit, because = self._limit(quantity)
        return Evidence(quantity, float(value), relation, limit, because, where, level=self._level(quantity))

    def negative_control(self, name: str, value: float, relation: Relation, limit: float, because: str) -> Evidence:
        """State that a quantity claimed to be constant changes where it should."""
        return Evidence(name, float(value), relation, float(limit), because, role="control", level=self.level)

    @property
    def level(self) -> Level:
        """The level of this case's claims, unless a bound overrides it."""
        return self.case.level or self.gate.level

    def _level(self, quantity: str) -> Level:
        return self.level if self.level == "hardening" else self.gate.bounds[quantity].level or self.level

    def _limit(self, quantity: str) -> tuple[float, str]:
        """Return a limit and the reason for it."""
        bound = self.gate.bounds[quantity]
        limit = bound.limit(self) if callable(bound.limit) else bound.limit
        return float(limit), f"{bound.kind}: {bound.because}"


def _far_off(got: Wire, want: Wire) -> bool:
    """Whether a number is off by more than a thousandth of an ordinary value: no digits were lost, it is another number."""
    values, wanted = np.broadcast_arrays(np.asarray(got, np.float64), np.asarray(want, np.float64))
    unequal = (values != wanted) & ~(np.isnan(values) & np.isnan(wanted))
    off = np.abs(np.subtract(values[unequal], wanted[unequal]))
    return not bool(np.all(off <= FAR_OFF * np.maximum(1.0, np.abs(wanted[unequal]))))


def _is_residue(got: Wire, want: Wire, limits: Wire) -> bool:
    """Whether what is beyond its limit is less than float32 shows beside the largest number: 1e-12 where 0 is wanted."""
    arrays = (np.asarray(each, np.float64) for each in (got, want, limits))
    values, wanted, allowed = np.broadcast_arrays(*arrays)
    if not (values.size and np.isfinite(values).all() and np.isfinite(wanted).all()):
        return False
    off = np.abs(values - wanted)
    return bool(np.all(off[off > allowed] <= RESIDUE * np.abs(wanted).max()))


def _declined(op: Op, name: str, value: Wire) -> str:
    """Return why a call with this argument is not asked."""
    if name in op.optional:
        return f"{op.name} does not take `{name}`, which is optional"
    if isinstance(value, np.ndarray):
        return f"{op.name} has no argument `{name}`, which this case gives"
    remedy = f"; declare {name}=({value!r},) if it has this choice alone" if name in CHOICES else ""
    return f"{op.name} has no argument `{name}`, which this case gives: {value!r}{remedy}"


KINDS = {"f": "floating-point numbers", "i": "integers", "b": "booleans", "scalar": "a number"}


def _misfit(value: Wire, output: Output, inputs: Mapping[str, Wire]) -> str:
    """Return the defect in shape or dtype of one output, or ""."""
    if output.kind == "text":
        return "" if isinstance(value, str) else f"is a {type(value).__name__}, must be text"
    if output.kind == "any" and not output.like:
        return ""
    try:
        array = np.asarray(value)
    except ValueError:
        return "is a nested list whose rows differ in length, must be an array"
    if output.like:
        like = np.asarray(inputs[output.like])
        fits = array.shape == like.shape and array.dtype.kind == like.dtype.kind
        shape, dtype = f"{array.dtype}{list(array.shape)}", f"{like.dtype}{list(like.shape)}"
        return "" if fits else f"is {shape}, must be {dtype} like {output.like}"
    kinds = "fiub" if output.kind == "scalar" else {"i": "iu"}.get(output.kind, output.kind)
    ndim = 0 if output.kind == "scalar" else output.ndim
    problems = []
    if array.dtype.kind not in kinds:
        problems.append(f"has dtype {array.dtype}, must hold {KINDS[output.kind]}")
    if ndim is not None and array.ndim != ndim:
        problems.append(f"has {array.ndim} axes, must have {ndim}")
    return ", ".join(problems)


def _as_array(value: Wire, output: Output | None) -> Wire:
    """Return a list of numbers as an array if the op declares an array."""
    if output is None or not isinstance(value, list):
        return value
    return np.asarray(value) if output.like or output.kind in {"f", "i", "b"} else value
