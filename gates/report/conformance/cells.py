"""The cells of the conformance matrix: what a library computes of a row, at its defaults and nearest to the paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gates.model import COSTLY
from gates.report.conformance.composition import choices, departing, preset, said
from gates.report.conformance.rows import OP, ROWS, TRAINERS, Row, placed, rows_of
from gates.report.labels import DEPARTS
from gates.report.statuses import BY_GRADE
from gates.results.conformance_records import ConformanceResults, CoverageRecord, FindingRecord, GradeRecord
from gates.results.library_facts import Facts, LibraryFacts

APART = frozenset({"fragile", "imprecise"} | {"hardening"})  # grades of rare input and of lost digits: in the appendix
WORST_FIRST = tuple(grade for grade in BY_GRADE if grade not in {*APART, "waived", "timeout", "error"})  # of a cell
USES = ("default", "option", "direct")  # of findings, the widest first
OPEN = ("needs a training step", "not judged yet", "no definition yet")  # statuses of names that no case asks
Kind = Literal["judged", "not judged", "refused", "absent"]
By = Literal["update", "function", "program"]


@dataclass(frozen=True, slots=True)
class Judged:
    """One composition that a library computes of a row.

    Attributes:
        choices: how it departs from the row's name: "token mean, no KL".
        grade: of this composition, on input that runs produce; empty where only findings say which it is.
        by: a real update of the library's own trainer, calls of its function, or the programs of findings.
        asked: cases that were judged.
        of: cases that there are.
        chosen: settings that are not the library's default.
    """

    choices: str
    grade: str
    by: By
    asked: int = 0
    of: int = 0
    chosen: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cell:
    """A library's cell in a row.

    Attributes:
        kind: judged, or which kind of blank.
        grade: the worst of what a default run shows, empty in a blank. Where only options or direct calls reach the row, theirs.
        use: in which the grade shows.
        otherwise: what is worse with a documented option or in direct calls, by use.
        default: what it computes with its defaults, or by choosing the row's name and nothing else.
        nearest: what comes nearest to the paper, None where the default does.
        also: further compositions that were judged.
        findings: bugs, traps and conventions about it.
        why: of a blank.
    """

    row: Row
    peer: str
    kind: Kind
    grade: str = ""
    use: str = "default"
    otherwise: Mapping[str, str] = field(default_factory=dict)
    default: Judged | None = None
    nearest: Judged | None = None
    also: tuple[Judged, ...] = ()
    findings: tuple[FindingRecord, ...] = ()
    why: str = ""


def matrix(libraries: Sequence[ConformanceResults], facts: Facts) -> dict[tuple[str, str], Cell]:
    """Return the cell of each row and library, by title and name."""
    found = {}
    for library in libraries:
        peer, places = library.header.peer, placed(library)
        known = facts.get(peer)
        for row in ROWS:
            about = [finding for finding in library.findings if row in places[finding.id]]
            found[row.title, peer] = cell(row, library, about, known)
    return found


def cell(
    row: Row, library: ConformanceResults, about: Sequence[FindingRecord], known: LibraryFacts | None = None
) -> Cell:
    """Return one cell from the library's record, the findings about the row, and what is known beside."""
    peer = library.header.peer
    shown = tuple(finding for finding in about if finding.kind != "numeric")
    programs = [finding for finding in shown if _costs(finding)]
    graded = [grade for grade in library.grades if row in rows_of(grade.op, grade.subject)]
    by_use = _by_use(graded, programs, {finding.id: finding for finding in library.findings})
    if graded:
        default, nearest, also = _compositions(row, library, graded, about, known.trainers if known else {})
        grade, use, otherwise = _summed_up(by_use)
        return Cell(row, peer, "judged", grade, use, otherwise, default, nearest, also, shown)
    kind, why = _blank(row, library, known)
    if programs:
        grade, use, otherwise = _summed_up(by_use)
        default = Judged(said(about, row.presets, ("default", "option")), grade, "program")
        return Cell(row, peer, "judged", grade, use, otherwise, default, findings=shown, why=why)
    return Cell(row, peer, "not judged" if shown and kind == "absent" else kind, findings=shown, why=why)


def _by_use(
    graded: Sequence[GradeRecord], programs: Sequence[FindingRecord], known: Mapping[str, FindingRecord]
) -> dict[str, list[str]]:
    """Return the grades that each use shows: an op's by the uses of the findings that explain it, by default without any.

    A documented parameter set of what the library also has without it is an option.
    """
    found: dict[str, list[str]] = defaultdict(list)
    own = {grade.op for grade in graded if "@" not in grade.subject}
    for grade in graded:
        uses = [known[name].use for name in grade.findings if name in known]
        if "@" in grade.subject and preset(grade.op) in own:
            uses = [use for use in uses if use != "default"] or ["option"]
        reached = _reached(grade.grade)
        use = min(filter(None, uses), key=USES.index, default="default") if reached != "correct" else "default"
        found[use or "default"].append(reached)
    for finding in programs:
        found[finding.use or "default"].append(finding.grade)
    return found


def _summed_up(by_use: Mapping[str, Sequence[str]]) -> tuple[str, str, dict[str, str]]:
    """Return the grade of a cell, the use in which it shows, and what is worse in other uses."""
    first = next(use for use in USES if by_use.get(use))
    grade = worst(by_use[first])
    others = {use: worst(grades) for use, grades in by_use.items() if use != first and grades}
    worse = {use: other for use, other in others.items() if WORST_FIRST.index(other) < WORST_FIRST.index(grade)}
    return grade, first, worse


def worst(grades: Iterable[str]) -> str:
    """Return the worst of the grades that a cell can have; correct without any."""
    return min((grade for grade in grades if grade in WORST_FIRST), key=WORST_FIRST.index, default="correct")


def _costs(finding: FindingRecord) -> bool:
    """Return whether a finding that no op shows makes a cell worse: its program shows another formula in a run or call."""
    return not finding.ops and finding.grade in {"wrong", "differs", DEPARTS} and bool(finding.reproduced)


def _reached(grade: str) -> str:
    """Return a grade without what is in the appendix: where that is the worst, the composition itself is right."""
    return "correct" if grade in APART or grade == "waived" else grade


def _compositions(
    row: Row,
    library: ConformanceResults,
    graded: Sequence[GradeRecord],
    about: Sequence[FindingRecord],
    trainers: Mapping[str, Mapping[str, Any]],
) -> tuple[Judged | None, Judged | None, tuple[Judged, ...]]:
    """Return what is computed by default, nearest to the paper, and further compositions."""
    peer = library.header.peer
    functions = sorted(
        _main(row, graded), key=lambda grade: (grade.subject != peer, bool(grade.settings), len(grade.op), grade.op)
    )
    judged: list[Judged] = []
    for one in (_function(row, grade) for grade in functions):
        if (one.choices, one.grade) not in {(other.choices, other.grade) for other in judged}:
            judged.append(one)
    step = next((grade for grade in graded if grade.op.startswith("training_step[")), None)
    if step is not None:
        words = _trained_as(row, step, about, trainers)
        default = Judged(
            words, _reached(step.grade), "update", step.cases, step.cases + step.not_judged, tuple(step.settings)
        )
        nearest = next((one for one in judged if words and not one.choices), None)
        return (
            default,
            nearest,
            tuple(one for one in judged if one.choices not in {"", words} and one.grade != "differs"),
        )
    if not judged:
        return None, None, ()
    first = judged[0]
    uses = ("default", "option") if first.chosen else ("default",)
    if not first.choices and (words := said(about, row.presets, uses)):
        return Judged(words, "", "program"), first, tuple(judged[1:])
    return first, None, tuple(judged[1:])


def _trained_as(
    row: Row, step: GradeRecord, about: Sequence[FindingRecord], trainers: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return the composition of a trainer's updates: what its settings say where they agree, else what findings say."""
    settings = trainers.get(step.op.partition("[")[2].rstrip("]"))
    if not row.algorithm:
        return ""
    if settings is None or _reached(step.grade) != "correct":
        return said(about, row.presets, ("default",))
    return departing(settings, row.presets[0] if row.presets else "")


def _main(row: Row, graded: Sequence[GradeRecord]) -> list[GradeRecord]:
    """Return the grades that stand for the row: of the loss itself; all of a row without one."""
    losses = [grade for grade in graded if grade.op.startswith(("policy_loss[", "preference_loss[", "kto_loss"))]
    if row.algorithm:
        return losses or [grade for grade in graded if not grade.op.startswith("training_step[")]
    return _summed(graded)


def _summed(graded: Sequence[GradeRecord]) -> list[GradeRecord]:
    """Return one grade for all ops of a part, with their cases."""
    first = min(graded, key=lambda grade: WORST_FIRST.index(worst([_reached(grade.grade)])))
    if first.op.startswith("training_step["):
        return []
    sums = {name: sum(getattr(grade, name) for grade in graded) for name in ("cases", "not_judged")}
    settings = list(dict.fromkeys(setting for grade in graded for setting in grade.settings))
    return [first.model_copy(update={**sums, "settings": settings})]


def _function(row: Row, grade: GradeRecord) -> Judged:
    return Judged(
        _beside(row, grade) or choices(grade.op) or _named_by(grade),
        _reached(grade.grade),
        "function",
        grade.cases,
        grade.cases + grade.not_judged,
        tuple(grade.settings),
    )


def _beside(row: Row, grade: GradeRecord) -> str:
    """Return which of several presets or trainers of a row a grade is of: `gspo-token` beside GSPO, `xpo` of other losses."""
    parts, variant = OP.fullmatch(grade.op), grade.subject.partition("@")[2]
    name = parts["choices"] if parts and row.algorithm else ""
    if variant in TRAINERS:
        return ", ".join(word for word in (variant * (variant == "xpo"), name * (name != "dpo")) if word)
    several = len(row.presets) > 1 and name in row.presets
    return name if several and (name != row.presets[0] or row.title.startswith("other")) else ""


def _named_by(grade: GradeRecord) -> str:
    """Return what a diagnosis names where a composition differs: "the loss of dpo"."""
    words = grade.computes.removeprefix("computes: ").partition(" (asked")[0]
    return words if grade.grade == "differs" else ""


def _blank(row: Row, library: ConformanceResults, known: LibraryFacts | None) -> tuple[Kind, str]:
    """Return which blank it is, and why."""
    for blank in library.blanks:
        if row in rows_of(blank.op, library.header.peer):
            return ("refused" if blank.kind == "refused" else "not judged"), blank.why
    waiting = [name for name in library.coverage if name.status in OPEN]
    own = [name for name in waiting if row.names(name.name)]
    trained = [name for name in waiting if row.algorithm and any(f"[{one}]" in name.reason for one in row.trainers)]
    for name in sorted(own, key=_is_setting) or sorted(trained, key=_is_setting):
        return "not judged", f"{name.name}: {name.status} ({name.reason})"
    if known and row.title in known.named:
        return "not judged", f"no case asks it; named at {known.named[row.title]}"
    return ("absent", "") if row.words else ("not judged", "no case asks it")


def _is_setting(name: CoverageRecord) -> bool:
    """Return whether a public name is a setting, which says less of what waits than a class or a function."""
    return name.source.split()[0] in {"fields", "parameters", "registered"}


assert set(WORST_FIRST[:3]) <= set(COSTLY)
