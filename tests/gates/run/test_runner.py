"""Who gets which verdict, and that none passes by silence."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from doubles import DOUBLE, make_gate

from gates.model import Bound, Case, Evidence, Gate, Subject, Trial, Verdict
from gates.run.execute import run
from gates.run.plan import Options, case_seed, plan

Maker = Callable[..., Subject]
RIGHT = "return {'y': 2 * x}"


def verdict(gate: Gate, subject: Subject) -> Verdict:
    (judged,) = run(plan([gate], [subject], quick=False), Options())
    return judged.verdict


def gate_of(check: Callable[[Trial], Iterator[Evidence]]) -> Gate:
    return make_gate(check)


class TestFaults:
    """What is the subject's fault is `wrong`."""

    @pytest.mark.parametrize(
        ("body", "status", "cause"),
        [
            (RIGHT, "correct", "held"),
            ("return {'y': (2 * x).tolist()}", "correct", "held"),
            ("return {'y': np.asarray(2 * x, object).astype(float)}", "correct", "held"),
            ("raise NotImplementedError('no float64')", "unsupported", "lacking"),
        ],
        ids=["right", "list", "wider", "unsupported"],
    )
    def test_each_kind_of_answer_has_its_status(self, subject: Maker, body: str, status: str, cause: str) -> None:
        """The right value passes, as a list too; test_hostile.py has what fails."""
        found = verdict(make_gate(), subject(body))
        assert (found.status, found.cause) == (status, cause), found.reason

    def test_an_absent_subject_is_skipped_with_its_cause(self, subject: Maker) -> None:
        found = verdict(make_gate(), replace(subject(RIGHT), why_absent="no environment yet"))
        assert (found.status, found.reason) == ("skipped", "no environment yet")

    def test_a_library_that_cannot_be_preloaded_is_a_skip(self, subject: Maker) -> None:
        """A variant that needs a library of the system is skipped where that is missing, and says which."""
        found = verdict(make_gate(), replace(subject(RIGHT), preload=("libnowhere.so.0",)))
        assert found.status == "skipped"
        assert "libnowhere.so.0" in found.reason

    def test_a_crash_does_not_end_the_run(self, subject: Maker) -> None:
        """After a crash the next case gets a fresh worker."""
        dying = subject("if x[0] > 0:\n    import os\n    os._exit(1)\nreturn {'y': 2 * x}")
        cases = tuple(
            Case(name, lambda rng, sign=sign: {"x": sign * np.ones(4)}) for name, sign in (("dies", 1), ("lives", -1))
        )
        found = [j.verdict for j in run(plan([make_gate(cases=cases)], [dying], quick=False), Options())]
        assert {v.case: v.status for v in found} == {"dies": "raises", "lives": "correct"}

    def test_a_documented_departure_is_named_so(self, subject: Maker) -> None:
        """A peer's documented other choice still fails, and its reason starts with where it is documented."""
        head = "DEPARTURES_DOCUMENTED = {'double': 'README, section Doubling'}"
        found = verdict(make_gate(), subject("return {'y': 3 * x}", head=head))
        assert (found.status, found.cause) == ("wrong", "departs")
        assert found.reason.startswith("departs (documented: README, section Doubling)")

    @pytest.mark.parametrize(
        ("body", "documented", "cause"),
        [
            ("return {'y': 3 * x}", "in part: the README", "bound"),
            ("raise ValueError('no')", "the README", "raised"),
            ("return {'y': x[:1]}", "the README", "shape"),
        ],
        ids=["in part", "raises", "shape"],
    )
    def test_documentation_excuses_nothing_else(self, subject: Maker, body: str, documented: str, cause: str) -> None:
        """What is documented only in part, an exception and a wrong shape stay plain failures."""
        head = f"DEPARTURES_DOCUMENTED = {{'double': {documented!r}}}"
        found = verdict(make_gate(), subject(body, head=head))
        assert (found.status, found.cause) == ("raises" if cause == "raised" else "wrong", cause)

    def test_declared_conventions_leave_other_cases_unsupported(self, subject: Maker) -> None:
        """A case that needs a convention the subject does not declare is unsupported, and says which it has."""
        declared = subject(RIGHT, head="CONVENTIONS = {'double': {'ddof': (0,)}}")
        case = Case("ddof1", lambda rng: {"x": np.ones(2)}, conventions={"ddof": 1})
        found = verdict(make_gate(cases=(case,)), declared)
        assert found.status == "unsupported"
        assert "ddof 0, not 1" in found.reason


def test_a_killed_call_leaves_its_folder_to_the_next(subject: Maker) -> None:
    """A call killed in the middle is a timeout; the next one finds in the folder what it had written."""
    body = (
        "import pathlib, time\nfile = pathlib.Path(str(x.tobytes(), 'utf-8')) / 'state'\n"
        "if file.exists():\n    return {'y': np.array([2.0])}\nfile.write_text('half')\ntime.sleep(60)"
    )

    def resume(t: Trial) -> Iterator[Evidence]:
        folder = np.frombuffer(str(t.folder).encode(), np.uint8)
        first = t.call(DOUBLE, kill_after_s=1.0, x=folder)
        second = t.call(DOUBLE, x=folder)
        yield t.number("y", float(first.kind != "timeout") + float(second.kind != "value"), "<=")

    gate = make_gate(resume, bounds={"y": Bound("exact", "a test", 0.0)})
    assert verdict(gate, subject(body)).status == "correct"


class TestErrors:
    """What is the judge's fault is `error`, never `pass`."""

    def test_no_evidence_is_an_error(self, subject: Maker) -> None:
        """A gate that yields nothing measured nothing."""

        def nothing(t: Trial) -> Iterator[Evidence]:
            yield from ()

        found = verdict(gate_of(nothing), subject(RIGHT))
        assert (found.status, found.reason) == ("error", "the gate measured nothing")

    def test_signals_alone_are_no_evidence(self, subject: Maker) -> None:
        """A gate that only states signals measured nothing either."""

        def signals(t: Trial) -> Iterator[Evidence]:
            yield t.precondition("something", 1.0, ">", 0.0)

        assert verdict(gate_of(signals), subject(RIGHT)).status == "error"

    def test_a_missing_signal_is_an_error_even_where_the_claim_holds(self, subject: Maker) -> None:
        """Zeros agree with zeros: without its signal a gate does not pass."""
        case = Case("zeros", lambda rng: {"x": np.zeros(4)})
        found = verdict(make_gate(cases=(case,)), subject(RIGHT))
        assert (found.status, found.cause) == ("error", "signal")

    @pytest.mark.parametrize(
        ("check", "cause"),
        [
            (lambda t: iter([t.want(replace(DOUBLE, oracle=lambda x: 1 / 0), **t.inputs)]), "oracle"),
            (lambda t: iter([1 / 0]), "gate"),  # type: ignore[list-item]
        ],
    )
    def test_an_exception_of_oracle_or_gate_is_an_error(self, subject: Maker, check: Any, cause: str) -> None:
        """An oracle or a gate that raises is never the subject's failure."""
        found = verdict(gate_of(check), subject(RIGHT))
        assert (found.status, found.cause) == ("error", cause)

    def test_a_control_that_does_not_move_fails(self, subject: Maker) -> None:
        def constant(t: Trial) -> Iterator[Evidence]:
            got = t.got(DOUBLE, **t.inputs)["y"]
            yield t.number("y", float(np.abs(got).max()), "<=")
            yield t.negative_control("movement", float(np.ptp(got)), ">", 0.0, "constants prove nothing")

        gate = make_gate(constant, bounds={"y": Bound("exact", "zero", 0.0)})
        assert verdict(gate, subject("return {'y': 0 * x}")).cause == "control"


class TestPlan:
    """Which cases are judged."""

    def test_quick_takes_the_quick_cases(self, subject: Maker) -> None:
        """`--quick` plans the quick cases only."""
        cases = tuple(Case(n, lambda rng: {"x": np.ones(2)}, quick=n == "a") for n in "ab")
        assert [j.case.name for j in plan([make_gate(cases=cases)], [subject(RIGHT)], quick=True)] == ["a"]

    def test_a_proof_takes_its_own_cases_too(self, subject: Maker) -> None:
        """`proof` adds to the quick cases those that a proof or a calibration needs, and no others."""
        cases = tuple(Case(n, lambda rng: {"x": np.ones(2)}, quick=n == "a", proof=n == "b") for n in "abc")
        planned = plan([make_gate(cases=cases)], [subject(RIGHT)], quick=True, proof=True)
        assert [j.case.name for j in planned] == ["a", "b"]

    def test_seeds_depend_on_names_and_not_on_the_selection(self) -> None:
        """A case has the same seed alone and among others, and another one with another run seed."""
        gate = make_gate()
        assert (
            case_seed(gate, gate.cases[0], 0) == case_seed(gate, gate.cases[0], 0) != case_seed(gate, gate.cases[0], 1)
        )

    def test_closing_the_iterator_ends_the_workers(self, subject: Maker) -> None:
        """A run that is stopped in the middle leaves no worker behind."""
        cases = tuple(Case(str(n), lambda rng: {"x": np.ones(2)}) for n in range(50))
        slow = subject("import time\ntime.sleep(0.2)\nreturn {'y': 2 * x}")
        judged = run(plan([make_gate(cases=cases)], [slow], quick=False), Options(jobs=2))
        assert next(judged).verdict.status == "correct"
        judged.close()  # type: ignore[attr-defined]
