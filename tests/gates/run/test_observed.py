"""Arithmetic is observed: code that casts to float32 is right code, and a mistake in it is as wrong as in any other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import CACHED
from runs_on_file import verdict, write

from gates.arithmetic.narrow import in_float32
from gates.arithmetic.number import constant, number
from gates.diagnosis.identify import identified
from gates.families.programs import programs
from gates.model import IN_FLOAT32, Case, Evidence, Level, Subject, Verdict
from gates.registry import load
from gates.report import screen
from gates.report.formats import render
from gates.report.grades import Grades
from gates.report.labels import note
from gates.results.jsonl import Results
from gates.run.engines.pool import Pool
from gates.run.execute import run
from gates.run.observed import granted
from gates.run.oracle_cache import OracleCache
from gates.run.plan import Options, PlannedCase, plan
from gates.shrink.probe import Asker

HONEST = Path(__file__).parents[2] / "honest"
PROGRAMS = sorted(
    path.stem for path in HONEST.glob("numpy_*.py") if path.stem not in {"numpy_packing", "numpy_trainer"}
)
CASTING = """
import functools, importlib.util, sys
import numpy as np

sys.path.insert(0, {folder!r})
spec = importlib.util.spec_from_file_location("plain", {path!r})
plain = sys.modules["plain"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain)


def narrow(value):
    return value.astype({dtype!r}) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


def cast(op, function):
    @functools.wraps(function)
    def call(**inputs):
        {mistake}
        found = function(**{{name: narrow(value) for name, value in inputs.items()}})
        {damage}
        return found

    return call


OPS = {{op: cast(op, function) for op, function in plain.OPS.items()}}
CONVENTIONS = {{op: {{**getattr(plain, "CONVENTIONS", {{}}).get(op, {{}}), **{promise!r}}} for op in OPS}}
"""


def casting(
    folder: Path,
    program: str,
    *,
    dtype: str = "float32",
    mistake: str = "pass",
    damage: str = "pass",
    promise: Mapping[str, Any] | None = None,
) -> Subject:
    """Return a plain program that casts float64 data, perhaps with a mistake in its inputs or its results."""
    file = folder / f"{program}.py"
    path, words = str(HONEST / f"{program}.py"), {"mistake": mistake, "damage": damage, "promise": dict(promise or {})}
    file.write_text(CASTING.format(folder=str(HONEST), path=path, dtype=dtype, **words))
    return Subject(program, file, f"subject_{program}")


def in_wide(case: Case) -> bool:
    """Whether the case has float64 data."""
    return "float64" in case.name or "float64" in {case.conventions.get("dtype"), case.conventions.get("arithmetic")}


def wide_cases(subject: Subject, gates: str = "") -> list[PlannedCase]:
    """Return the float64 cases of the gates that run no model."""
    chosen = [gate for name, gate in load().gates.items() if name.startswith(gates)]
    return [planned for planned in plan(chosen, [subject], quick=False) if in_wide(planned.case)]


def judged(subject: Subject, gates: str = "") -> list[Verdict]:
    """Return the verdicts on the float64 cases that the subject supports."""
    verdicts = (one.verdict for one in run(wide_cases(subject, gates), Options(), partial(Pool, cached=CACHED)))
    return [verdict for verdict in verdicts if verdict.status != "unsupported"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_float32_arithmetic_is_never_wrong(tmp_path: Path, program: str) -> None:
    """By no definition and no law, and the evidence says what it computes in."""
    verdicts = judged(casting(tmp_path, program))
    refused = [f"{v.where}: {v.reason}" for v in verdicts if v.status in {"wrong", "error", "timeout"}]
    assert not refused
    noted = [v for v in verdicts if note(v)]
    assert noted or program in {"numpy_preference_prompts", "numpy_packing_scan"}  # which have no float64 case
    assert all(IN_FLOAT32 in str([item.because for item in v.evidence]) for v in noted)
    assert {v.status for v in noted} <= {"correct", "imprecise", "fragile"}
    assert any(v.status == "correct" for v in noted) or not noted


INVERTED = """end = "" if op == "token_kl" else "_logprobs"
        inputs["policy" + end], inputs["reference" + end] = inputs["reference" + end], inputs["policy" + end]"""
MISTAKES: tuple[tuple[str, str, str, str], ...] = (  # program, gates, what is wrong with its inputs, or with its results
    ("numpy_advantages", "advantages.matches", "inputs['ddof'] = None if inputs['ddof'] is None else 1 - inputs['ddof']", ""),
    (
        "numpy_advantages",
        "advantages.matches",
        "mode = inputs['eps_mode']; inputs['eps_mode'] = {'inside': 'add', 'add': 'inside'}.get(mode, mode)",
        "",
    ),
    ("numpy_advantages", "advantages.gae", "inputs['lam'] = inputs['lam'] * 0.999", ""),
    (
        "numpy_advantages",
        "advantages.normalise",
        "inputs['group_ddof'] = 1 - inputs['group_ddof'] if 'group_ddof' in inputs else 0",
        "",
    ),
    ("numpy_kl", "kl.", INVERTED, ""),
    ("numpy_kl_other", "kl.", "", "found = {'kl': found['kl'] * 1.0001}"),
    ("numpy_loss", "loss.grpo.matches", "inputs['mask'] = np.roll(inputs['mask'], 1, axis=1)", ""),
    ("numpy_loss", "loss.dapo.matches", "", "found = {name: 1.0001 * value for name, value in found.items()}"),
    (
        "numpy_loss_other",
        "loss.grpo.matches",
        "inputs['epsilon_low'], inputs['epsilon_high'] = inputs['epsilon_high'] * 1.01, inputs['epsilon_low']",
        "",
    ),
    ("numpy_preference", "preference.dpo", "inputs['beta'] = inputs['beta'] * 1.0001", ""),
    ("numpy_preference", "preference.orpo", "inputs['policy'] = -np.abs(inputs['policy']) * 1.0001", ""),
    ("numpy_preference", "preference.kto", "inputs['desirable'] = ~inputs['desirable']", ""),
    ("numpy_ratio", "ratio.", "inputs['policy'], inputs['old'] = inputs['old'], inputs['policy']", ""),
    ("numpy_ratio", "weights.", "", "found = {name: 1.0001 * value for name, value in found.items()}"),
    ("numpy_logprobs", "logprobs.selective", "", "found = {name: value * 1.0001 for name, value in found.items()}"),
)  # fmt: skip


@pytest.mark.parametrize(("program", "gates", "mistake", "damage"), MISTAKES)
def test_a_mistake_in_float32_is_wrong(tmp_path: Path, program: str, gates: str, mistake: str, damage: str) -> None:
    """On float64 data alone, so that no float32 case helps."""
    verdicts = judged(casting(tmp_path, program, mistake=mistake or "pass", damage=damage or "pass"), gates)
    assert any((v.status, v.cause) == ("wrong", "bound") for v in verdicts), [(v.case, v.reason) for v in verdicts]


@pytest.mark.parametrize("program", ["numpy_kl", "numpy_advantages", "numpy_loss", "numpy_preference"])
def test_half_precision_is_not_granted(tmp_path: Path, program: str) -> None:
    """On float64 data: at its limits the mistakes would hide."""
    verdicts = judged(casting(tmp_path, program, dtype="float16"))
    assert any(v.status == "wrong" for v in verdicts)
    assert not any(note(v) for v in verdicts)


@pytest.mark.parametrize("program", ["numpy_kl", "numpy_advantages"])
def test_a_promise_of_float64_is_held_to(tmp_path: Path, program: str) -> None:
    """As our own subjects promise it, so that a mutant that computes in float32 is caught."""
    verdicts = judged(casting(tmp_path, program, promise={"arithmetic": ("float64",)}))
    assert any(v.status == "wrong" for v in verdicts)
    assert not any(note(v) for v in verdicts)


def test_our_own_kernels_promise_float64() -> None:
    """Every op of the baseline and of rlkernels."""
    from gates.subjects import rlkernels  # noqa: PLC0415  the kernels are built once
    from gates.subjects.numpy_baseline import subject  # noqa: PLC0415

    for module in (subject, rlkernels):
        assert module.CONVENTIONS.keys() == module.OPS.keys()
        assert all("float64" in conventions["arithmetic"] for conventions in module.CONVENTIONS.values())


def test_limits_of_float32_are_computed_only_where_float64_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check of float64 code costs no more."""
    calls: list[str] = []
    before = OracleCache.limits_in_float32
    monkeypatch.setattr(
        OracleCache, "limits_in_float32", lambda self, op, inputs: calls.append(op.name) or before(self, op, inputs)
    )
    assert {v.status for v in judged(casting(tmp_path, "numpy_kl", dtype="float64"), "kl.k2")} <= {
        "correct",
        "imprecise",
    }
    assert not calls
    judged(casting(tmp_path, "numpy_kl"), "kl.k2")
    assert set(calls) == {"token_kl"}


def test_the_search_for_a_smallest_input_grants_it_too(tmp_path: Path) -> None:
    """Otherwise an input would be shrunk to one on which right code is off by a rounding."""
    subject = casting(tmp_path, "numpy_kl")
    (planned, *_) = wide_cases(subject, "kl.k3")
    asker = Asker(subject)
    try:
        answer = asker.ask(planned.gate, planned.case, planned.case.make(np.random.default_rng(0)))
    finally:
        asker.close()
    assert answer.state == "holds", answer.reason


def test_identify_agrees_with_check(tmp_path: Path) -> None:
    """Of a program that takes float64 alone, both say that it computes in float32; a mistake has its name."""
    program = programs()["token_kl"]
    gates = [gate for gate in load().gates.values() if gate.id.startswith("kl.k")]
    taken = {"dtype": ("float64",), "estimator": ("k3",)}
    right = identified(program, gates, casting(tmp_path, "numpy_kl", promise=taken)).diagnosis
    assert right is not None
    assert right.words.endswith(f"({IN_FLOAT32})")
    assert "k3" in right.words
    swapped = "inputs['policy'], inputs['reference'] = inputs['reference'], inputs['policy']"
    wrong = identified(program, gates, casting(tmp_path, "numpy_kl", mistake=swapped, promise=taken)).diagnosis
    assert wrong is not None
    assert wrong.words != right.words


class TestNarrow:
    """Numbers of a program in float32 whatever its data."""

    def test_data_lose_half_a_unit_in_the_last_place(self) -> None:
        values = np.random.default_rng(0).normal(0.0, 3.0, 1000)
        with in_float32():
            narrow = number(values)
        assert narrow.dtype == "float32"
        assert np.all(np.abs(values.astype(np.float32) - values) <= narrow.error)
        assert np.all(narrow.error <= np.abs(values) * 2.0**-24)

    def test_what_float32_holds_is_exact(self) -> None:
        with in_float32():
            assert not number(np.array([0.0, 1.5, -np.inf, 3.0])).error.any()

    def test_a_constant_is_rounded(self) -> None:
        with in_float32():
            assert float(constant(0.1, "float64").error) >= abs(float(np.float32(0.1)) - 0.1)
        assert float(constant(0.1, "float64").error) == 0.0

    def test_what_overflows_has_no_limit(self) -> None:
        with in_float32():
            assert np.isinf(number(np.array([1e300])).limit()).all()
        assert np.isfinite(number(np.array([1e300])).limit()).all()

    def test_a_difference_of_close_numbers_keeps_the_error_of_its_data(self) -> None:
        """1000.001 − 1000 is off by up to 3e-5 in float32, however exact the subtraction is."""
        a, b = np.array([1000.001]), np.array([1000.0])
        with in_float32():
            limit = (number(a) - number(b)).limit()
        assert float(abs((a.astype(np.float32) - b.astype(np.float32)) - (a - b))[0]) <= float(limit[0]) < 2e-4


def claim(observed: float, because: str = "", level: Level = "definition", quantity: str = "error") -> Evidence:
    """Return a claim that holds up to 1."""
    return Evidence(quantity, observed, "<=", 1.0, because, level=level)


class TestGranted:
    """Which evidence stands after both runs of a check."""

    wide: Sequence[Evidence] = (claim(0.5), claim(9.0), claim(9.0, level="precision", quantity="sharp"))
    precise = frozenset(("sharp",))

    def test_what_holds_in_float64_stays(self) -> None:
        """And a claim of full precision is not asked."""
        narrow = [claim(0.1, "narrow"), claim(0.1, "narrow"), claim(9.0, "narrow", "precision", "sharp")]
        assert granted(self.wide, narrow, self.precise) == [self.wide[0], narrow[1]]

    def test_nothing_is_granted_unless_all_hold(self) -> None:
        narrow = [claim(0.1), claim(2.0), claim(9.0, level="precision", quantity="sharp")]
        assert granted(self.wide, narrow, self.precise) == list(self.wide)

    def test_a_definition_in_a_case_about_precision_is_asked(self) -> None:
        """Its level is that of the case, but its quantity is no claim of full precision."""
        wide, narrow = [claim(9.0, level="precision")], [claim(2.0, level="precision")]
        assert granted(wide, narrow, self.precise) == wide

    def test_preconditions_of_the_draw_stay(self) -> None:
        narrow = [claim(0.1, "narrow")]
        assert granted([self.wide[0], claim(9.0)], narrow, self.precise) == [self.wide[0], narrow[0]]

    def test_other_evidence_grants_nothing(self) -> None:
        """As of a check that ends at its first failure."""
        assert granted([claim(9.0)], [claim(0.1, quantity="another")], self.precise) == [claim(9.0)]
        assert granted([claim(9.0)], [claim(0.1), claim(0.1)], self.precise) == [claim(9.0)]


class TestReports:
    """The note stands once for each op."""

    narrow = Evidence("kl error in textbook limits", 0.5, "<=", 1.0, f"derived: {IN_FLOAT32}: twice the bound")

    def verdicts(self) -> list[Any]:
        noted = [verdict(case=f"{n}", op="token_kl[k3]", evidence=(self.narrow,)) for n in range(3)]
        return [*noted, verdict(op="token_kl[k1]", case="b")]

    def test_of_a_grade(self) -> None:
        plain, noted = Grades.of(self.verdicts()).grades()
        assert (plain.op, plain.note, noted.op, noted.note) == ("token_kl[k1]", "", "token_kl[k3]", IN_FLOAT32)
        assert (plain.record()["note"], noted.record()["note"]) == (None, IN_FLOAT32)

    def run(self, folder: Path) -> Results:
        return write(folder / "run.jsonl", self.verdicts())

    @pytest.mark.parametrize("width", [60, 120])
    def test_on_the_screen(self, tmp_path: Path, width: int) -> None:
        text = "\n".join(line.plain for line in screen.lines(screen.of(self.run(tmp_path)), width))
        assert text.count(IN_FLOAT32) == 1
        assert f"{IN_FLOAT32}: token_kl[k3]" in text

    @pytest.mark.parametrize("form", ["md", "html"])
    def test_in_a_document(self, tmp_path: Path, form: Any) -> None:
        """On the page once in the table of grades; the evidence, which is data, has it with its limit."""
        shown = render(form, [self.run(tmp_path)]).replace(f"derived: {IN_FLOAT32}", "")
        assert shown.count(IN_FLOAT32) == 1
