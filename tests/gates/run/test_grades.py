"""The level of the claim that does not hold decides the grade; what rests on a wrong definition is not asked."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import (
    GRADE_OF,
    LEVELS,
    Array,
    Bound,
    Case,
    Evidence,
    Gate,
    Level,
    Status,
    Subject,
    Trial,
    Verdict,
    Wire,
)
from gates.run.execute import in_order
from gates.run.plan import Options, plan

Maker = Callable[..., Subject]
RIGHT, OFF = "return {'y': 2 * x}", "return {'y': 2 * x + 3e-9}"


def _limits(x: Array) -> Mapping[str, Array]:
    return {"y": np.where(x < 9.0, 1e-6, np.inf)}


LIMITED = replace(DOUBLE, oracle=lambda x: 2.0 * x, textbook=_limits)


def _both(t: Trial) -> Iterator[Evidence]:
    """The definition in textbook limits, and full precision."""
    x = t.inputs["x"]
    yield from t.agrees(
        "y in units", t.got(LIMITED, x=x)["y"], t.want(LIMITED, x=x), t.textbook(LIMITED, x=x)["y"], scale=1.0
    )


def both(**changes: Any) -> Gate:
    """A gate whose claim of precision is 1000 times sharper than that of its definition."""
    bounds = {"y in units": Bound("derived", "sharp", 1e-9, level="precision")}
    return make_gate(**{"check": _both, "ops": (LIMITED,), "bounds": bounds, **changes})


def judged(subject: Subject, *gates: Gate) -> dict[str, Verdict]:
    """The verdict of each gate and case."""
    found = in_order(plan(gates, [subject], quick=False), Options())
    return {f"{one.verdict.gate} {one.verdict.case}": one.verdict for one in found}


@pytest.mark.parametrize(
    ("body", "status", "level"),
    [
        (RIGHT, "correct", "definition"),
        (OFF, "imprecise", "precision"),
        ("return {'y': 3 * x}", "wrong", "definition"),
        ("return {'y': x * np.nan}", "wrong", "definition"),
        ("return {'y': (2 * x).tolist()}", "correct", "definition"),
        ("raise ValueError('no')", "raises", "definition"),
    ],
)
def test_the_worst_claim_decides(subject: Maker, body: str, status: Status, level: Level) -> None:
    """A wrong value breaks both claims and is wrong; a rounded one breaks that of precision only."""
    (found,) = judged(subject(body), both()).values()
    assert (found.status, found.level) == (status, level), found.reason


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_has_its_grade(subject: Maker, level: Level) -> None:
    subject_ = subject("return {'y': 2.0002 * x}")  # off by less than a thousandth: digits may have been lost
    case = Case("some", lambda rng: {"x": rng.normal(size=8)}, level=level)
    assert [v.status for v in judged(subject_, make_gate(level=level)).values()] == [GRADE_OF[level]]
    assert [v.status for v in judged(subject_, make_gate(cases=(case,))).values()] == [GRADE_OF[level]]


@pytest.mark.parametrize("body", ["return {'y': 3 * x}", "return {'y': x * np.nan}", "return {'y': x / 0}"])
def test_another_number_lost_no_digits(subject: Maker, body: str) -> None:
    """At level precision it is fragile: the formula holds elsewhere, and here it gives another number."""
    (found,) = judged(subject(body), make_gate(level="precision")).values()
    assert (found.status, found.level) == ("fragile", "robustness")


@pytest.mark.parametrize("level", ["definition", "robustness"])
@pytest.mark.parametrize("residue", [2e-12, 1e-3])
def test_a_residue_beside_larger_numbers_costs_precision_only(subject: Maker, residue: float, level: Level) -> None:
    """1e-12 where 0 is wanted is less than float32 shows beside the largest number."""
    rare = Case("rare", lambda rng: {"x": np.array([0.0, 1.0])}, level=level)
    limits = replace(LIMITED, textbook=lambda x: {"y": np.zeros_like(x)})

    def exact(t: Trial) -> Iterator[Evidence]:
        x = t.inputs["x"]
        yield from t.agrees("y in units", t.got(limits, x=x)["y"], t.want(limits, x=x), np.zeros_like(x))

    (found,) = judged(
        subject(f"return {{'y': 2 * x + {residue}}}"), both(check=exact, ops=(limits,), cases=(rare,))
    ).values()
    assert found.status == ("imprecise" if residue < 1e-6 else GRADE_OF[level])


@pytest.mark.parametrize("level", sorted(set(LEVELS) - {"definition", "law"}))
def test_an_exception_outside_plain_cases_costs_no_grade(subject: Maker, level: Level) -> None:
    (found,) = judged(subject("raise ValueError('long')"), make_gate(level=level)).values()
    assert (found.status, found.cause) == ("hardening", "raised")


def test_an_element_without_a_limit_is_not_a_claim(subject: Maker) -> None:
    """Where all are without one, the inputs belong to another level, and that is the gate's error."""
    body = "return {'y': np.where(x > 9, np.nan, 2 * x)}"
    far = Case("far", lambda rng: {"x": np.array([1.0, 10.0])})
    none = Case("none", lambda rng: {"x": np.array([10.0])})
    sharp = {"y in units": Bound("derived", "no claim of precision here", np.inf, level="precision")}

    def only(t: Trial) -> Iterator[Evidence]:
        x = t.inputs["x"]
        yield from t.agrees("y in units", t.got(LIMITED, x=x)["y"], t.want(LIMITED, x=x), t.textbook(LIMITED, x=x)["y"])

    found = judged(subject(body), both(check=only, bounds=sharp, cases=(far, none)))
    assert [v.status for v in found.values()] == ["correct", "error"]


def test_gates_that_rest_on_a_wrong_definition_are_not_asked(subject: Maker) -> None:
    """One cause is one finding; another op, and a subject that is right, are asked everything."""
    gates = [make_gate(), make_gate(id="double.law", level="law"), make_gate(id="double.rare", level="robustness")]
    wrong = judged(subject("return {'y': 3 * x}"), *gates)
    assert [v.status for v in wrong.values()] == ["wrong", "not asked", "not asked"]
    assert all("the definition does not hold (double of tried)" in v.reason for v in list(wrong.values())[1:])
    assert {v.status for v in judged(subject(RIGHT, name="right"), *gates).values()} == {"correct"}


def test_a_law_about_two_ops_rests_on_both(subject: Maker) -> None:
    """Another formula under the second name does not make the first one wrong."""
    gate = make_gate()
    law = make_gate(id="double.law", level="law", name="other", cases=(replace(gate.cases[0], rests_on=("double",)),))
    found = judged(subject("return {'y': 3 * x}"), gate, law)
    assert [v.status for v in found.values()] == ["wrong", "not asked"]
    assert "the definition does not hold (double of tried)" in list(found.values())[1].reason
    assert {v.status for v in judged(subject(RIGHT, name="right"), gate, law).values()} == {"correct"}


class TestConventions:
    """Declared words, numbers and booleans bind."""

    @pytest.mark.parametrize(
        ("declared", "asked", "status"),
        [
            ("(1e-4,)", 1e-4, "correct"),
            ("(1e-4,)", float(np.float32(1e-4)), "correct"),
            ("(1e-4,)", 1e-6, "unsupported"),
            ("(False,)", True, "unsupported"),
            ("(1,)", True, "unsupported"),
            ("(0,)", False, "unsupported"),
            ("('mean',)", "sum", "unsupported"),
        ],
    )
    def test_a_call_with_another_choice_is_unsupported(
        self, subject: Maker, declared: str, asked: Wire, status: Status
    ) -> None:
        """Whether it stands in the case's conventions or only in the call."""
        made = subject("return {'y': 2 * x}", f"CONVENTIONS = {{'double': {{'eps': {declared}}}}}")
        made.entry.write_text(made.entry.read_text().replace("def double(x)", "def double(x, eps=None)"))

        def check(t: Trial) -> Iterator[Evidence]:
            yield t.within("y", t.got(DOUBLE, x=t.inputs["x"], eps=asked)["y"], 2 * t.inputs["x"])

        (called,) = judged(made, make_gate(check)).values()
        assert called.status == status, called.reason
        case = Case("some", lambda rng: {"x": rng.normal(size=8)}, conventions={"eps": asked})
        (named,) = judged(made, make_gate(cases=(case,))).values()
        assert named.status == status, named.reason

    @pytest.mark.parametrize(("head", "status"), [("", "unsupported"), ("lower-id", "correct"), ("any", "unsupported")])
    def test_a_rule_is_asked_where_it_is_declared(self, subject: Maker, head: str, status: Status) -> None:
        """A choice of ours is no one's fault who did not make it, and the verdict names the word."""
        words = f"CONVENTIONS = {{'double': {{'ties': ({head!r},)}}}}" if head else ""
        case = Case("some", lambda rng: {"x": rng.normal(size=8)}, level="rule", declared={"ties": "lower-id"})
        (found,) = judged(subject(RIGHT, words), make_gate(cases=(case,))).values()
        assert found.status == status
        assert status == "correct" or "ties=('lower-id',)" in found.reason or "'lower-id'" in found.reason


@pytest.mark.parametrize("kind", ["raised", "value"])
def test_a_subject_that_answers_unsupported_is_never_failed_for_it(subject: Maker, kind: str) -> None:
    """Whatever a check expects of a call, such as an error."""
    refusing = subject("raise NotImplementedError('not this one')")

    def check(t: Trial) -> Iterator[Evidence]:
        outcome = t.call(DOUBLE, x=t.inputs["x"])
        yield t.number("y", float(outcome.kind != kind), "<=")

    (found,) = judged(refusing, make_gate(check)).values()
    assert (found.status, found.reason) == ("unsupported", "not this one")
