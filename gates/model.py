"""The types of the judge: gates, cases, ops, subjects, mutants, evidence, verdicts.

All are frozen values. Nothing here runs a subject or prints.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np

from gates.errors import ConfigurationError as ConfigurationError  # noqa: PLC0414  part of these types

Array = np.ndarray[Any, np.dtype[Any]]
Wire = Any  # ndarray | int | float | str | bool | None | list[Wire] | dict[str, Wire]: all that can be sent to a worker
Level = Literal["definition", "law", "robustness", "precision", "rule", "hardening"]
Grade = Literal["correct", "hardening", "imprecise", "fragile", "raises", "differs", "wrong"]
Status = Literal[
    "correct",
    "hardening",
    "imprecise",
    "fragile",
    "raises",
    "differs",
    "wrong",
    "timeout",
    "error",
    "skipped",
    "unsupported",
    "waived",
    "not asked",
]
Relation = Literal["<=", "<", ">=", ">", "==", "!="]
Role = Literal["claim", "signal", "control"]
OutcomeKind = Literal["value", "raised", "unsupported", "crashed", "timeout"]

THEMES = (
    "masks and shifts",
    "normalisation",
    "advantages",
    "ratio and rollout",
    "KL",
    "lost gradients",
    "precision",
    "state and resume",
    "configuration",
    "sampling",
    "tokenizer",
    "packing",
    "preference",
    "metrics",
)
LEVELS: Mapping[Level, str] = {
    "definition": "is it the formula, on inputs that training produces?",
    "law": "what holds whatever the formula is: padding is inert, rows may be reordered, a setting acts",
    "robustness": "rare input that runs produce: equal rewards, rows without tokens, −inf logits, ratios up to e^20",
    "precision": "the full relative precision of the dtype, and reductions of more than 4,096 terms",
    "rule": "a choice of ours where the field has none, asked of subjects that declare it",
    "hardening": "input that no pipeline produces: NaN in masked slots, ±1000 nats, denormals, strided arrays",
}
IN_LIMITS = "in textbook limits"  # the unit in which claims of definitions are measured
IN_FLOAT32 = "computes in float32"  # the note on an answer to float64 data that only float32 arithmetic explains
GRADES: tuple[Grade, ...] = (  # from best to worst
    "correct",
    "hardening",
    "imprecise",
    "fragile",
    "raises",
    "differs",
    "wrong",
)
GRADE_OF: Mapping[Level, Grade] = {  # of a subject for which a claim of this level does not hold
    "definition": "wrong",
    "law": "wrong",
    "rule": "wrong",
    "robustness": "fragile",
    "precision": "imprecise",
    "hardening": "hardening",
}
STATUSES: tuple[Status, ...] = (
    *GRADES,
    "timeout",
    "error",
    "skipped",
    "unsupported",
    "waived",
    "not asked",
)
DEFAULT: Grade = "raises"  # the mildest grade that fails a run without `--fail-on`
STRICT: Grade = "hardening"  # under `--strict`
FAILURES: frozenset[Status] = frozenset((*GRADES[1:], "timeout"))  # the subject is at fault
NOT_JUDGED: frozenset[Status] = frozenset({"skipped", "unsupported", "not asked"})
COSTLY: tuple[Grade, ...] = tuple(reversed(GRADES[GRADES.index("imprecise") :]))  # grades to fix, from wrong on
WORST_FIRST: tuple[Status, ...] = (
    "error",
    "timeout",
    *COSTLY,
    "waived",
    "correct",
    "hardening",
    *(status for status in STATUSES if status in NOT_JUDGED),
)
AXES = ("ratio_level", "bound", "aggregation")  # choices of a preset that a subject may declare differently: `Op.axes`
DEFINITIONS = "2.1"  # the version of docs/definitions.md, which every results file records


def failing(fail_on: Grade) -> frozenset[Status]:
    """Return the statuses that fail a run under `--fail-on`: that grade, the worse ones, and timeouts."""
    return frozenset((*GRADES[GRADES.index(fail_on) :], "timeout"))


def worst(statuses: Collection[Status]) -> Status:
    """Return the status that sums up several verdicts: errors of Gates first, then from worst to best.

    A failure at level hardening costs no grade: it counts only where nothing else was judged.
    """
    return min(statuses, key=WORST_FIRST.index)


class SubjectFaultError(Exception):
    """The subject broke the contract of an op: the case fails, or is a `timeout`, with this cause."""

    def __init__(self, cause: str, reason: str) -> None:
        super().__init__(reason)
        self.cause = cause


class UnsupportedError(Exception):
    """The subject, or the model of `--model`, does not have what a case asks about; the verdict is `unsupported`."""

    def __init__(self, reason: str, argument: str = "") -> None:
        """Take the reason, and the argument that its function lacks if that is the reason."""
        super().__init__(reason)
        self.argument = argument


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to build a model, which the worker does so that the judge needs no framework, or how a gate draws prompts."""

    kind: Literal["model", "data"]
    spec: Mapping[str, Wire]


@dataclass(frozen=True, slots=True)
class Case:
    """One seeded input of a gate.

    `make` builds the inputs from a NumPy generator and must use nothing else. `conventions` are the choices that this
    case needs (`{"ddof": 1}`, a tuple of all that it needs); a subject that declares other ones is `unsupported`. `model` is the part of the name that
    tells the tiny model of this case from that of another. `quick` cases are all that `gates check --quick` judges; `gates
    prove` and `gates calibrate` take those of `proof` too, unless `--full` gives them every case. `level` stands instead of the gate's: "robustness" for a case
    with a hostile ingredient, "precision" for a very long reduction. `declared` are conventions that a subject must
    declare to be asked this case: a rule of ours, or an optional behaviour. Cases that name the same `sample`, of this
    gate or of another, are given generators of the same seed, so that a slow answer serves several (`Trial.got_once`).
    `rests_on` names other ops, such as `policy_loss[grpo]`, that a law compares with: where the definition of one does not
    hold, the case is not asked. `compose` returns the same case for other choices on the axes of its op, and for another
    choice of the conventions in `changeable`; it raises ValueError where they do not go together.
    """

    name: str
    make: Callable[[np.random.Generator], Mapping[str, Wire | Recipe]]
    quick: bool = False
    proof: bool = False
    limit_s: float = 20.0
    conventions: Mapping[str, Wire] = field(default_factory=dict)
    model: str = ""
    level: Level | None = None
    declared: Mapping[str, Wire] = field(default_factory=dict)
    sample: str = ""
    rests_on: tuple[str, ...] = ()
    compose: Callable[[Mapping[str, Any]], Case] | None = None
    changeable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """Shape and dtype of one output of an op.

    `like` names an input whose shape and kind of dtype the output has; a wider or narrower float is accepted, since the
    values decide. Otherwise `kind` is a NumPy dtype kind ("f", "i", "b"),
    "scalar", "text" or "any", and `ndim` the number of axes (None: any).
    """

    like: str = ""
    kind: str = "any"
    ndim: int | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One operation that subjects provide.

    `inputs` describes each keyword: shape, dtype, unit, legal values. Those in `optional` are given only in the cases
    that are about them, else left out or None; a subject whose function has no argument for one is `unsupported` there. Those in `fixed` select one of several
    ops of the same name; those in `settings` are optional too, and belong to a preset.

    A preset, named by the conventions in `key`, makes a choice on each of `axes`; a subject may declare another. `axes` maps
    each axis to its choices and their names in reports. `preset` returns the choices for the conventions of a case.
    """

    name: str
    outputs: Mapping[str, Output]
    source: str
    formula: str = ""
    inputs: Mapping[str, str] = field(default_factory=dict)
    oracle: Callable[..., Any] | None = None
    optional: Collection[str] = ()
    settings: Collection[str] = ()
    fixed: Mapping[str, Wire] = field(default_factory=dict)
    textbook: Callable[..., Mapping[str, Array]] | None = None
    key: tuple[str, ...] = ()
    axes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    preset: Callable[[Mapping[str, Wire]], Mapping[str, str]] = lambda conventions: {}  # noqa: ARG005


RECORDED = frozenset(("training_step",))
"""The ops of which each call has a process of its own under the recorder of `gates xray`: their value has its files, `recording`."""


@dataclass(frozen=True, slots=True)
class Subject:
    """An implementation that is judged: a file that a worker loads, if need be in an interpreter of its own."""

    name: str
    entry: Path
    module: str
    python: str | None = None
    preload: tuple[str, ...] = ()
    default: bool = True
    why_absent: str = ""  # if not empty, the reason why it cannot run here
    remedy: str = ""  # how to install it, where its worker cannot load it
    settings: Mapping[str, Wire] = field(default_factory=dict)  # a variant's choices: SETTINGS in its file
    environment: Mapping[str, str] = field(default_factory=dict)  # additional variables of its worker
    ops: tuple[str, ...] | None = None  # the ops that are planned; None: all, those that it lacks being `unsupported`
    memory_limit: int | None = None  # bytes of its worker and that worker's children; None: not watched
    needs: Mapping[str, float] = field(default_factory=dict)  # of a cluster's node: metal, cuda, memory in bytes

    @property
    def is_variant(self) -> bool:
        """Whether this is another subject's code under other settings (NAME@SETTING), judged where time allows."""
        return "@" in self.name

    @property
    def is_program(self) -> bool:
        """Whether the entry is a program that speaks the protocol itself rather than a Python file."""
        return self.entry.suffix != ".py"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one call. Every kind except `value` has its reason in `error`."""

    kind: OutcomeKind
    value: Mapping[str, Wire] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit and why it is right: a number, or a function of the trial and what it has measured.

    `level` overrides that of the case and the gate.
    """

    kind: Literal["exact", "derived", "calibrated"]
    because: str
    limit: float | Callable[[Trial], float]
    level: Level | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured number with its limit. NaN satisfies no relation."""

    quantity: str
    observed: float
    relation: Relation
    limit: float
    because: str
    where: str = ""
    role: Role = "claim"
    level: Level = "definition"

    @property
    def holds(self) -> bool:
        """Whether the observed number satisfies the relation."""
        a, b = self.observed, self.limit
        return bool({"<=": a <= b, "<": a < b, ">=": a >= b, ">": a > b, "==": a == b}.get(self.relation, False)) or (
            self.relation == "!=" and a != b and a == a and b == b  # noqa: PLR0124  NaN != NaN must not hold
        )

    def sentence(self) -> str:
        """Return the measured number as a sentence, as every report shows it."""
        return measured(self.quantity, self.observed, self.relation, self.limit, self.where, holds=self.holds)


def measured(quantity: str, observed: float, relation: Relation, limit: float, where: str, *, holds: bool) -> str:
    """Return the sentence of a measured number: `loss error is 3, must be <= 1 (row 2)`."""
    suffix = f" ({where})" if where else ""
    if holds:
        return f"{quantity} is {observed:.6g} ({relation} {limit:.6g}){suffix}"
    return f"{quantity} is {observed:.6g}, must be {relation} {limit:.6g}{suffix}"


def precondition(name: str, value: float, relation: Relation, limit: float, because: str = "") -> Evidence:
    """Return a condition without which the check means nothing, as evidence."""
    return Evidence(name, float(value), relation, float(limit), because or "signal", role="signal")


def nothing_required(_draw: Draw) -> Iterator[Evidence]:
    """Yield nothing: any inputs of the case will do."""
    return iter(())


@dataclass(frozen=True, slots=True)
class Probe:
    """The outputs that `gates prove` perturbs to find the smallest relative error that a gate notices."""

    op: str
    outputs: tuple[str, ...]
    when: Callable[[Mapping[str, Any]], bool] = lambda inputs: True  # noqa: ARG005  of the call's inputs


@dataclass(frozen=True, slots=True)
class Gate:
    """One property that implementations must have, checked on what they compute."""

    id: str
    question: str
    why: str
    ops: tuple[Op, ...]
    cases: tuple[Case, ...]
    bounds: Mapping[str, Bound]
    check: Callable[[Trial], Iterator[Evidence]]
    requires: Callable[[Draw], Iterator[Evidence]] = nothing_required  # preconditions of the inputs
    level: Level = "definition"  # of its claims, unless bound or case overrides it
    name: str = ""  # the field's name that is judged, such as policy_loss[grpo]
    probes: tuple[Probe, ...] = ()
    needs: Mapping[str, float] = field(default_factory=dict)  # of a cluster's node, in addition to the subject's
    together: str = ""  # one name under which all its cases are graded, instead of one for each choice

    @property
    def main(self) -> Op:
        """The op in its name, else its first."""
        name = self.name.partition("[")[0]
        return next((op for op in self.ops if op.name == name), self.ops[0])

    def graded(self, case: Case) -> str:
        """Return the op that a verdict of this case grades, with the choices that name it (`policy_loss[grpo]`)."""
        op = self.main
        if self.together:
            return f"{op.name}[{self.together}]"
        chosen = [str(case.conventions[key]) for key in op.key if case.conventions.get(key) is not None]
        preset = op.preset(case.conventions)
        asked = {axis: case.conventions.get(axis) for axis in op.axes}
        chosen += [op.axes[axis][choice] for axis, choice in asked.items() if choice not in {None, preset.get(axis)}]
        return f"{op.name}[{', '.join(chosen)}]" if chosen else op.name


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation: a mistake that real implementations made, applied to a host subject. Only workers load `patch`."""

    name: str
    mistake: str
    host: str
    target: str  # "module:qualname" of the function that is replaced
    patch: str  # "module:function", which takes the original and returns the mutated one
    caught_by: tuple[str, ...]
    source: str = ""  # where it was reported: "owner/repo#7: what it is", or a release; "; " between several
    arises: str = ""  # how it arises in practice
    theme: str = ""  # one of THEMES
    symptom: str = ""  # what it looks like in training, in one sentence; or that no curve shows it
    at: Level | None = None  # the level at which it must be caught; None: see `grade`
    cases: tuple[str, ...] = ()  # of those gates, those in which it has an effect; empty: all

    def has(self, case: Case) -> bool:
        """Return whether it is tried in a case."""
        return not self.cases or case.name in self.cases

    @property
    def grade(self) -> Grade:
        """The mildest grade that its host must get: a wrong formula is `wrong`, lost precision `imprecise`."""
        return GRADE_OF[self.at or ("precision" if self.theme == "precision" else "definition")]


@dataclass(frozen=True, slots=True)
class Waived:
    """The status that a verdict has without its waiver, who is responsible, and until when."""

    status: Status
    reason: str
    issue: str
    owner: str
    expires: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one gate, subject and case.

    `op` is what is graded, such as `policy_loss[grpo]`; `level` is that of the deciding claim, else of the case. `gave` are the
    inputs with a neutral value that a call gave another one; they are not recorded.
    """

    gate: str
    subject: str
    case: str
    seed: int
    status: Status
    cause: str
    reason: str
    evidence: tuple[Evidence, ...] = ()
    seconds: float = 0.0
    waived: Waived | None = None
    op: str = ""
    level: Level = "definition"
    gave: frozenset[str] = frozenset()

    @property
    def where(self) -> str:
        """Subject, gate and case in one line."""
        return f"{self.subject} · {self.gate} · {self.case}"


class Draw(Protocol):
    """The inputs of a case and the oracle, without a subject; preconditions are measured on these."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The case's inputs."""
        ...

    def want(self, op: Op, **inputs: Wire) -> Any:
        """Return what the oracle computes; if it raises, the verdict is `error`."""
        ...

    def textbook(self, op: Op, **inputs: Wire) -> Mapping[str, Array]:
        """Return the textbook limits of each output: how far a careful program in the data's dtype may be off."""
        ...

    def precondition(self, name: str, value: float, relation: Relation, limit: float, because: str = "") -> Evidence:
        """State a condition without which the check means nothing; if it does not hold, the verdict is `error`.

        Inputs that miss one of `Gate.requires` are drawn again first.
        """
        ...


class Trial(Draw, Protocol):
    """The interface of a check to one gate × subject × case."""

    @property
    def quick(self) -> bool:
        """Whether statistical gates draw a tenth of the samples: true without `--full`."""
        ...

    @property
    def facts(self) -> dict[str, Any]:
        """Numbers measured earlier in the check, which a bound's limit may read."""
        ...

    @property
    def folder(self) -> Path:
        """A scratch folder of this trial, the only way to pass state from one call to another."""
        ...

    def call(
        self,
        op: Op,
        *,
        layout: Mapping[str, str] | None = None,
        kill_after_s: float | None = None,
        **inputs: Wire,
    ) -> Outcome:
        """Run an op in the worker and return the outcome; `kill_after_s` kills the worker in mid-call.

        A subject that answers `unsupported` raises UnsupportedError, which makes the verdict `unsupported`.
        """
        ...

    def got(self, op: Op, *, layout: Mapping[str, str] | None = None, **inputs: Wire) -> dict[str, Any]:
        """Run an op and return its outputs; a shape or dtype other than declared fails the subject."""
        ...

    def checked(self, op: Op, outcome: Outcome, inputs: Mapping[str, Wire]) -> dict[str, Any]:
        """Return the outputs of a `call`, checked as `got` checks them."""
        ...

    def got_once(self, op: Op, *, instead: Mapping[str, Wire] | None = None, **inputs: Wire) -> dict[str, Any]:
        """Return what `got` does, but call the subject only once a run for equal inputs, whichever check asks.

        For slow calls that several checks share. `instead` replaces inputs when calls are compared, such as a scratch
        folder by a name.
        """
        ...

    def within(
        self, quantity: str, got: Wire, want: Wire, *, scale: Wire = 1.0, role: Role = "claim", where: str = ""
    ) -> Evidence:
        """Compare elementwise: the largest |got − want| / scale with the limit of `bounds[quantity]`."""
        ...

    def agrees(
        self, quantity: str, got: Wire, want: Wire, limits: Wire, *, scale: Wire | None = None, where: str = ""
    ) -> Iterator[Evidence]:
        """Compare elementwise with textbook limits; with `scale` also `within`, the claim of full precision."""
        ...

    def number(self, quantity: str, value: float, relation: Relation, *, where: str = "") -> Evidence:
        """Compare one number with the limit of `bounds[quantity]`."""
        ...

    def negative_control(self, name: str, value: float, relation: Relation, limit: float, because: str) -> Evidence:
        """State that a quantity claimed to be constant changes where it should; if not, the subject fails."""
        ...
