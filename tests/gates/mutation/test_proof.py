"""The proof of the judge: caught, missed and unused mutants, and the sensitivity of gates."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import here
from doubles import DOUBLE, make_gate

from gates.model import Bound, Case, ConfigurationError, Evidence, Mutant, Subject, Trial
from gates.mutation.proof import disturb, least, same, sensitivities, try_mutants
from gates.mutation.prove import ProofRequest, demonstrate
from gates.registry import FAMILIES, Registry, load
from gates.results.jsonl import Writer, read
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.worker.process import Worker

Maker = Callable[..., Subject]
HEAD = """
def factor():
    return 2

def unused():
    return 0

def three(original):
    return lambda: 3

def same(original):
    return original
"""


def tried(subject: Subject, target: str, patch: str, **changes: Any) -> tuple[str, str]:
    mutant = Mutant(
        "m", "a mistake", subject.name, f"{subject.module}:{target}", f"{subject.module}:{patch}", ("g",), "a test"
    )
    gates = {"g": make_gate(id="g", **changes)}
    (trialled,) = try_mutants([mutant], gates, {subject.name: subject}, Options())
    return trialled.state, trialled.reason


@pytest.mark.parametrize("first", [False, True], ids=["whole", "quick"])
def test_a_proof_of_nothing_exits_with_3(tmp_path: Path, first: bool) -> None:
    """Without a subject or mutants the exit code is 3, in the file and of the command."""
    writer = Writer(tmp_path / "prove.jsonl")
    request = ProofRequest(Registry(), (make_gate(),), Options(), writer, ["prove"], lambda text: None, first=first)
    code = demonstrate(request)
    writer.close()
    summary = read(tmp_path / "prove.jsonl").summary
    assert summary is not None
    assert code == summary.exit_code == 3


def test_the_header_counts_cases_of_proofs(tmp_path: Path) -> None:
    """The header's plan includes them, so that the file is complete."""
    done = here("prove", "packing.order.as-placed", "--out", "o", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "o").glob("*.jsonl")
    run = read(file)
    assert any(case.proof and not case.quick for case in load().gates["packing.order.as-placed"].cases)
    assert run.header.planned == len(run.verdicts) > 0


class TestMutants:
    """The result of a mutant."""

    def test_a_mistake_is_caught_by_a_failure(self, subject: Maker) -> None:
        """A mutant that changes the result fails, and the reason is the evidence."""
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "factor", "three")
        assert state == "caught"
        assert reason.startswith("y is 0.5, must be <= 1e-12")

    def test_first_stops_at_the_first_failing_case(self, subject: Maker) -> None:
        """Later cases are skipped, so that each planned case has a verdict."""
        host = subject("return {'y': factor() * x}", HEAD)
        names = [f"{host.module}:{name}" for name in ("factor", "three")]
        mutant = Mutant("m", "a mistake", host.name, *names, ("g",), "a test")
        case = make_gate().cases[0]
        gate = make_gate(id="g", cases=tuple(replace(case, name=name, quick=True) for name in "abc"))
        (trialled,) = try_mutants([mutant], {"g": gate}, {host.name: host}, Options(), first=True)
        assert trialled.state == "caught"
        assert [verdict.status for verdict in trialled.verdicts] == ["wrong", "skipped", "skipped"]

    def test_a_timeout_is_retried(self, tmp_path: Path, subject: Maker) -> None:
        """A timed-out case is retried once and does not count as caught."""
        stamp = tmp_path / "stamp"
        slow = (
            f"{HEAD}\nimport pathlib, time\ndef late(original):\n    def wait():\n"
            f"        file = pathlib.Path({str(stamp)!r})\n        if not file.exists():\n"
            "            file.touch()\n            time.sleep(30)\n        return 2\n    return wait\n"
        )
        case = replace(make_gate().cases[0], limit_s=1.0)
        cases = (case, replace(case, name="another"))
        state, reason = tried(subject("return {'y': factor() * x}", slow), "factor", "late", cases=cases)
        assert state == "equivalent", reason

    def test_a_mistake_that_changes_no_output_is_equivalent(self, subject: Maker) -> None:
        """A mutant with the outputs of the unmutated host proves nothing about a gate, and the reason says so."""
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "factor", "same")
        assert state == "equivalent"
        assert "no output differs" in reason

    def test_a_gate_that_cannot_fail_misses_the_mutant(self, subject: Maker) -> None:
        """A gate whose limit nothing exceeds misses a mutant that does change the output."""
        blind = {"y": Bound("derived", "never exceeded", 1e9)}
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "factor", "three", bounds=blind)
        assert (state, reason) == ("missed", "g does not fail: correct")

    def test_a_gate_with_a_nan_observation_stops_the_proof(self, subject: Maker) -> None:
        """A mean over no elements is NaN, which satisfies no relation, so the unmutated baseline fails."""

        def check(t: Trial) -> Iterator[Evidence]:
            wrong = np.abs(t.got(DOUBLE, **t.inputs)["y"] - 2 * t.inputs["x"])
            chosen = wrong[np.zeros(len(wrong), bool)]
            yield t.number("y", float(np.float64(chosen.sum()) / max(chosen.size, 0) if chosen.size else np.nan), "<=")

        right = subject("return {'y': 2 * x}")
        (judged,) = run(plan([make_gate(check=check)], [right], quick=False), Options())
        assert (judged.verdict.status, judged.verdict.cause) == ("wrong", "bound")

    def test_a_gate_that_measures_nothing_is_an_error(self, subject: Maker) -> None:
        """A gate that yields no claim is an error on the unmutated subject and catches no mutant."""

        def check(t: Trial) -> Iterator[Evidence]:
            t.got(DOUBLE, **t.inputs)
            yield t.precondition("rows", 1.0, ">", 0)

        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "factor", "three", check=check)
        assert state == "missed"
        assert "measured nothing" in reason

    def test_a_patch_target_that_never_ran_is_an_error(self, subject: Maker) -> None:
        """A mutant of an unused function proves nothing."""
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "unused", "three")
        assert state == "error"
        assert "never ran" in reason

    def test_a_patch_target_may_run_only_after_a_crash(self, subject: Maker, tmp_path: Path) -> None:
        """Calls are also counted in the worker that replaces a killed one."""

        def check(t: Trial) -> Iterator[Evidence]:
            crashed = t.call(DOUBLE, **t.inputs)
            yield t.precondition("crashes", float(crashed.kind == "crashed"), "==", 1)
            yield t.within("y", t.got(DOUBLE, **t.inputs)["y"], 2 * t.inputs["x"])

        head = f"{HEAD}\nimport os, pathlib\nflag = pathlib.Path({str(tmp_path / 'killed')!r})\n"
        body = "if not flag.exists():\n    flag.touch()\n    os.kill(os.getpid(), 9)\nreturn {'y': factor() * x}"
        host = subject(body, head)
        assert tried(host, "factor", "three", check=check)[0] == "caught"

    def test_an_error_does_not_catch_a_mutant(self, subject: Maker) -> None:
        """An unmet precondition is an error, which does not catch the mutant."""
        faint = Case("faint", lambda rng: {"x": np.full(3, 0.1)})
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), "factor", "three", cases=(faint,))
        assert state == "missed"
        assert "error" in reason

    @pytest.mark.parametrize(("target", "patch"), [("no_such", "three"), ("factor", "no_such")])
    def test_a_patch_target_or_patch_that_does_not_exist_is_an_error(
        self, subject: Maker, target: str, patch: str
    ) -> None:
        """An unresolved name is an error of the mutant."""
        state, reason = tried(subject("return {'y': factor() * x}", HEAD), target, patch)
        assert state == "error"
        assert "no_such" in reason


class TestSensitivity:
    """The least relative error that a gate notices."""

    def test_it_is_the_step_above_the_limit(self, subject: Maker) -> None:
        """A limit of 3e-5 notices 4e-5, the next step."""
        gate = make_gate()
        gate = replace(gate, bounds={"y": replace(gate.bounds["y"], limit=3e-5)})
        right = subject("return {'y': 2 * x}")
        worker = Worker.start(right, threads=1)
        try:
            (sensitivity,) = sensitivities(gate, right, Options(), worker)
        finally:
            worker.close()
        assert sensitivity.noticed is not None
        assert 3e-5 < sensitivity.noticed < 4.1e-5

    @pytest.mark.parametrize(
        ("limit", "expected"), [(0.2, None), (0.05, 0.0667), (1e-30, 1e-10), (3e-7, 4e-7)], ids=str
    )
    def test_bisection(self, limit: float, expected: float | None) -> None:
        """The least error is found to within a third; None if no error fails."""
        error = least(lambda power: 10.0**power > limit)
        assert error == (expected if expected is None else pytest.approx(expected, rel=0.34))
        assert error is None or error > limit

    @pytest.mark.parametrize(
        ("a", "b", "expected"),
        [
            (np.array([np.nan]), np.array([np.nan]), True),
            (np.array([0.0]), np.array([-0.0]), False),
            (np.zeros(2), np.zeros(2, np.float32), False),
            ({"y": [1, float("nan")]}, {"y": [1, float("nan")]}, True),
            ({"y": 1}, {"x": 1}, False),
            ([1, 2], [1], False),
            ("a", "a", True),
            (1, 1.0, False),
        ],
        ids=str,
    )
    def test_outcomes_are_compared_to_the_bit(self, a: Any, b: Any, expected: bool) -> None:
        """NaN equals NaN, −0 differs from 0, and so do other dtypes."""
        assert same(a, b) is expected

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (np.array([1.0, 0.0]), [1.1, 0.0]),
            (np.zeros(2), [0.1, 0.1]),
            (np.array([1, 2]), [1, 2]),
            (2.0, 2.2),
            ("text", "text"),
        ],
        ids=["array", "zeros", "integers", "number", "text"],
    )
    def test_a_perturbation_is_relative(self, value: Any, expected: Any) -> None:
        """Floats change by a relative error, zeros by an absolute one, other values not at all."""
        off = disturb(value, 0.1)
        assert off == expected if isinstance(expected, str) else off == pytest.approx(expected)


class TestRegistry:
    """Unresolved names are refused at registration."""

    def test_everything_registered_is_connected(self) -> None:
        """Every mutant names existing gates and an existing host, and every gate has a mutant."""
        load().check_names()

    def test_a_gate_without_a_mutant_is_refused(self) -> None:
        """A gate needs a mutant that it catches."""
        registry = Registry()
        registry.add_gate(make_gate())
        with pytest.raises(ConfigurationError, match="gates without a mutant"):
            registry.check_names()

    def test_a_mutant_of_an_unknown_gate_is_refused(self) -> None:
        """A mutant must name a gate of the registry."""
        registry = Registry()
        registry.add_mutant(
            Mutant("m", "", "s", "a:b", "a:b", ("none",), arises="a test", theme="KL", symptom="Nothing.")
        )
        with pytest.raises(ConfigurationError, match="names gate 'none'"):
            registry.check_names()

    def test_names_are_unique(self) -> None:
        """A second gate of the same id, and two cases of the same name, are refused."""
        registry = Registry()
        registry.add_gate(make_gate())
        with pytest.raises(ConfigurationError, match="registered twice"):
            registry.add_gate(make_gate())
        with pytest.raises(ConfigurationError, match="distinct names"):
            registry.add_gate(make_gate(id="other", cases=make_gate().cases * 2))

    def test_every_family_has_a_folder(self) -> None:
        """FAMILIES and the folders of gates/families are the same."""
        folder = Path(sys.modules["gates.registry"].__file__ or "").parent / "families"
        assert set(FAMILIES) == {path.name for path in folder.iterdir() if (path / "op.py").is_file()}

    def test_a_plugin_that_imports_a_framework_is_refused(self, tmp_path: Path) -> None:
        """An entry point may declare subjects; one that loads a framework in the judge is a configuration error."""
        import subprocess  # noqa: PLC0415  a fresh interpreter, since the registry is loaded once

        (tmp_path / "torch.py").write_text("")
        (tmp_path / "plugged.py").write_text("def add(registry):\n    import torch\n")
        info = tmp_path / "plugged-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[gates.plugins]\nplugged = plugged:add\n")
        code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from gates.cli import main; sys.argv = ['gates', 'list']; main()"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "plugin 'plugged' imports torch in the judge" in done.stderr


def test_the_oracle_of_the_test_op_doubles() -> None:
    """`double` of the tests multiplies by 2."""
    assert DOUBLE.oracle is not None
    assert DOUBLE.oracle(x=np.array([2.0])).tolist() == [4.0]
