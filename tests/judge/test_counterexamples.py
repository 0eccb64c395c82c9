"""Counterexamples: as small as they go, kept in a file that is not trusted, judged again, turned into a test."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.counterexample import minimising
from gates.counterexample.file import Counterexample, read, write
from gates.counterexample.minimising import CannotMinimiseError, minimise, reason_against
from gates.counterexample.moves import elements, measure
from gates.counterexample.shrinking import shrink
from gates.model import ConfigurationError, Verdict
from gates.registry import load
from gates.report.jsonl import read as read_results
from gates.runner import Job, Options

ROOT = Path(__file__).resolve().parents[2]
Inputs = dict[str, Any]
SOME = Counterexample(
    gate="kl.k3.matches-definition",
    case="masked-none-float64",
    seed=3,
    subject="numpy",
    entry="/nowhere/mine.py",
    kind="claim",
    reason="r",
    words="w",
    elements_before=9,
    elements_after=3,
    finished=True,
    judged_beside=None,
    quick=True,
    tool="t",
    inputs={"policy": np.array([[0.0, np.nan]]), "beta": float("inf"), "rows": [np.arange(2), None], "on": True},
)
WRONG_DDOF = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    divisor = groups.std(axis=1, ddof=0, keepdims=True) + eps
    varies = groups.max(axis=1, keepdims=True) > groups.min(axis=1, keepdims=True)
    advantages = np.divide(centred, divisor, out=np.zeros_like(centred), where=varies)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""
POISONED = """
from gates.subjects import numpy as plain

def policy_loss(**inputs):
    answer = plain.OPS["policy_loss"](**inputs)
    return {**answer, "loss": answer["loss"] + 0.0 * float(inputs["policy"].sum())}

OPS = {"policy_loss": policy_loss}
"""


def gates(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates", *arguments], capture_output=True, text=True, cwd=cwd, timeout=120, check=False
    )


def run_test(file: Path, subject: str = "") -> int:
    environment = {**os.environ, "GATES_SUBJECT": subject}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    return subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, check=False).returncode


def batch(rows: int, width: int) -> Inputs:
    rng = np.random.default_rng(7)
    return {
        "policy": rng.normal(size=(rows, width)),
        "mask": rng.random((rows, width)) < 0.8,
        "rewards": rng.normal(size=rows),
        "group_size": 4,
        "lengths": np.full(rows, width, np.int64),
    }


def grouped(inputs: Inputs) -> bool:
    if inputs["group_size"] < 1:
        return False
    return inputs["policy"].shape[0] % inputs["group_size"] == 0 and len(inputs["rewards"]) == len(inputs["policy"])


class TestShrinking:
    """The search, with predicates in the place of gates."""

    @pytest.mark.parametrize(
        ("inputs", "fails", "wanted"),
        [
            (batch(8, 16), lambda x: bool((x["policy"] > 1.0).any()), 3),
            (batch(8, 16), lambda x: grouped(x) and len(x["rewards"]) >= 2, 6),
            (batch(8, 16), lambda x: not x["mask"].all(), 2),
            (batch(8, 16), lambda x: x["lengths"].max() <= x["policy"].shape[1] and x["policy"].size > 0, 2),
            (
                {"tokens": np.arange(1.0, 11.0), "lengths": np.array([4, 1, 5])},
                lambda x: x["lengths"].sum() == len(x["tokens"]) and len(x["lengths"]) > 1,
                2,
            ),
            ({"x": np.ones(6), "parts": [2, 4]}, lambda x: sum(x["parts"]) == len(x["x"]) and len(x["parts"]) == 2, 2),
        ],
        ids=[
            "one token",
            "one group",
            "one masked slot",
            "lengths follow the width",
            "flat sequences",
            "micro-batches",
        ],
    )
    def test_it_ends_at_a_handful(self, inputs: Inputs, fails: Callable[[Inputs], bool], wanted: int) -> None:
        """What the predicate needs is left, and what goes together stays together."""
        before = {name: np.copy(value) for name, value in inputs.items()}
        found = shrink(inputs, fails, 20.0)
        assert fails(found.inputs)
        assert found.finished
        assert max(value.size for value in found.inputs.values() if isinstance(value, np.ndarray)) <= wanted
        assert all(np.array_equal(before[name], inputs[name]) for name in inputs), "the given inputs changed"

    @settings(deadline=None)  # the machine may pause
    @given(st.integers(1, 5), st.integers(1, 6), st.floats(-3, 3))
    def test_what_it_returns_fails_and_is_no_larger(self, rows: int, width: int, limit: float) -> None:
        """For any threshold that the inputs exceed, the result exceeds it too and measures no more."""
        inputs = {"x": np.random.default_rng(rows * width).normal(size=(rows, width)) * 2}
        if inputs["x"].max() <= limit:
            return
        found = shrink(inputs, lambda x: bool((x["x"] > limit).any()), 5.0)
        assert (found.inputs["x"] > limit).any()
        assert measure(found.inputs) <= measure(inputs)
        assert found.inputs["x"].size == 1

    @pytest.mark.parametrize(
        ("inputs", "fails", "wanted"),
        [
            ({"epsilon_high": 0.28, "beta": 0.3}, lambda x: x["beta"] > 0.0, {"epsilon_high": 0.2, "beta": 1.0}),
            ({"scale": 0.4375, "on": True}, lambda x: 0.0 < x["scale"] < 1.0, {"scale": 0.4, "on": True}),
            ({"seed": 987654321}, lambda x: x["seed"] % 3 == 2, {"seed": 2}),
            ({"seed": 987654321}, lambda x: x["seed"] > 20, {"seed": 987654321}),
            ({"top_k": 40}, lambda x: x["top_k"] > 5, {"top_k": 6}),
            ({"ddof": 1, "eps": float("inf")}, lambda x: x["eps"] > 0, {"ddof": 1, "eps": 1.0}),
            ({"delta": 1.7, "old": np.ones(3)}, lambda x: True, {"delta": None, "old": None}),
            ({"left": {"beta": 0.7}, "right": {"beta": 0.7}},
             lambda x: x["left"]["beta"] == x["right"]["beta"] > 0.5, {"left": {"beta": 1.0}, "right": {"beta": 1.0}}),
        ],
        ids=["defaults", "digits", "first seed", "no small seed", "integer", "declared stays", "nothing", "both calls"],
    )  # fmt: skip
    def test_numbers_beside_the_arrays_become_plain(
        self, inputs: Inputs, fails: Callable[[Inputs], bool], wanted: Inputs
    ) -> None:
        """The default before 0 and 1 and fewer digits, the first seeds, None where it may be; what is declared stays."""
        found = shrink(inputs, fails, 20.0, settled=frozenset({"ddof"}), optional=frozenset({"delta", "old"}))
        assert found.inputs == wanted
        assert found.finished

    @pytest.mark.parametrize("row", [0, 2])
    def test_ids_follow_the_vocabulary(self, row: int) -> None:
        """What points into an axis is renumbered when the axis is cut: the row with the token left is found again."""
        logits = np.random.default_rng(1).normal(size=(3, 400))
        logits[row, 321] = 50.0
        history = np.array([[7, 40, -1], [321, 399, 5], [8, 321, 321]])
        history[row, 1] = 321

        def fails(x: Inputs) -> bool:
            ids = x["history"]
            if ids.max() >= x["logits"].shape[1] or len(ids) != len(x["logits"]):
                return False
            return bool((np.take_along_axis(x["logits"], np.maximum(ids, 0), 1)[ids >= 0] >= 50.0).any())

        found = shrink({"logits": logits, "history": history}, fails, 20.0)
        assert fails(found.inputs)
        assert found.inputs["logits"].shape == found.inputs["history"].shape == (1, 1)

    @pytest.mark.parametrize("kind", ["same", "shuffled", "twice", "wider"])
    def test_two_calls_shrink_together(self, kind: str) -> None:
        """Rows and columns go from both calls of a law, and what points from one to the other still does."""
        rng = np.random.default_rng(3)
        left, take = rng.normal(size=(6, 5)), np.arange(30)
        left[4, 3] = 9.0
        right = left
        if kind == "shuffled":
            order = rng.permutation(6)
            right, take = left[order], np.arange(30).reshape(6, 5)[np.argsort(order)].reshape(-1)
        elif kind == "twice":
            right = np.concatenate([left, left])
        elif kind == "wider":
            right, take = np.pad(left, ((0, 0), (0, 2))), (np.arange(6)[:, None] * 7 + np.arange(5)).reshape(-1)

        def fails(x: Inputs) -> bool:
            a, b = x["left"]["x"], x["right"]["x"].reshape(-1)
            whole = len(x["take"]) == a.size and x["take"].max() < b.size
            return bool(whole and (b[x["take"]] == a.reshape(-1)).all() and (a > 5).any() and a.shape[1] > 1)

        found = shrink({"left": {"x": left}, "right": {"x": right}, "take": take}, fails, 20.0)
        assert found.inputs["left"]["x"].shape == (1, 2)
        assert found.inputs["right"]["x"].size <= (4 if kind == "twice" else 2)

    def test_it_stops_when_the_time_is_over(self) -> None:
        """Without time the inputs come back as they were, and are said to be unfinished."""
        found = shrink(batch(8, 16), lambda x: True, 0.0)
        assert not found.finished
        assert elements(found.inputs) == elements(batch(8, 16))


class TestFile:
    """What is written is read; what somebody else wrote is checked."""

    def test_it_comes_back_with_its_bits(self, tmp_path: Path) -> None:
        """Arrays, nested ones, NaN and infinities included."""
        write(tmp_path / "c.safetensors", SOME)
        found = read(tmp_path / "c.safetensors")
        assert found.inputs["policy"].tobytes() == SOME.inputs["policy"].tobytes()
        assert found.inputs["rows"][0].tolist() == [0, 1]
        assert found.inputs["rows"][1] is None
        assert (found.inputs["beta"], found.inputs["on"]) == (float("inf"), True)
        assert (found.gate, found.seed, found.finished, found.judged_beside) == (SOME.gate, 3, True, None)
        assert [path.name for path in tmp_path.iterdir()] == ["c.safetensors"]

    def test_it_is_a_safetensors_file(self, tmp_path: Path) -> None:
        """The library of the format reads the arrays."""
        write(tmp_path / "c.safetensors", SOME)
        arrays = safetensors.numpy.load_file(tmp_path / "c.safetensors")
        assert set(arrays) == {"policy", "rows.0"}
        assert arrays["policy"].tobytes() == SOME.inputs["policy"].tobytes()

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda data: b"", "no header"),
            (lambda data: data[:30], "header claims"),
            (lambda data: struct.pack("<Q", 1 << 62) + data[8:], "header claims"),
            (lambda data: data[:-1], "does not fit"),
            (lambda data: data.replace(b'"shape": [1, 2]', b'"shape": [9, 2]'), "does not fit"),
            (lambda data: data.replace(b'"shape": [1, 2]', b'"shape": [-1,2]'), "must be integers"),
            (lambda data: data.replace(b'"F64"', b'"X64"'), "no counterexample"),
            (lambda data: data.replace(b'"F64"', b'"F32"'), "does not fit"),
            (lambda data: data.replace(b"__metadata__", b"__metadatb__"), "no counterexample"),
            (lambda data: data.replace(b'\\"format\\": 1', b'\\"format\\": 7'), "another version"),
            (lambda data: data.replace(b'\\"seed\\": 3', b'\\"seed\\": []')[:-1], "does not fit|no counterexample"),
            (lambda data: data.replace(b'\\"gate\\"', b'\\"gats\\"'), "`gate` is missing"),
            (lambda data: data.replace(b'{\\"$array\\": \\"policy\\"}', b'{\\"$array\\": \\"polica\\"}'), "polica"),
            (lambda data: struct.pack("<Q", 60000) + b"[" * 60000, "no counterexample"),
            (lambda data: struct.pack("<Q", 4) + b"null" + data, "no counterexample"),
            (lambda data: os.urandom(200), "no counterexample|header claims"),
        ],
        ids=[
            "empty", "cut header", "huge header", "cut data", "larger shape", "negative shape", "dtype", "other dtype",
            "no metadata", "format", "field of another kind", "no gate", "no array", "deep", "null", "noise",
        ],
    )  # fmt: skip
    def test_what_is_no_counterexample_is_refused(
        self, tmp_path: Path, change: Callable[[bytes], bytes], words: str
    ) -> None:
        """One sentence, whatever the bytes are, before anything large is allocated."""
        path = tmp_path / "c.safetensors"
        write(path, SOME)
        path.write_bytes(change(path.read_bytes()))
        with pytest.raises(ConfigurationError, match=words):
            read(path)

    def test_a_missing_file_or_folder_is_refused(self, tmp_path: Path) -> None:
        """As one sentence."""
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(ConfigurationError, match="cannot read"):
                read(path)


class TestMinimising:
    """Known mistakes end at a handful of numbers."""

    @pytest.mark.parametrize(
        ("mutant", "case", "most", "words"),
        [
            ("loss.ratio-constant", "ragged", 4, "got"),
            ("loss.delta-forgotten", "two-sided-clip", 4, "above δ = 2"),
            ("loss.clip-never-acts", "ragged", 4, "below 1 − ε_low = 0.8"),
            ("loss.lengths-off-by-one", "ragged", 4, "got 0"),
            ("kl.k3-expm1-minus-d", "masked-none-float64", 3, "completion 1 of 1, token 1 of 1: got"),
            ("ratios.swapped", "token-holes-far-float32", 3, "ratio exp(policy − old) 2.71828"),
            ("advantages.unscored-counts-zero", "trl-float32", 2, "completion 1 of 2: got"),
            ("sampling.draw-reaches", "none-hf", 3, "uniforms [0.0]"),
            ("loss.bnpo-one-micro-batch", "ragged", 8, "micro_batches [1, 1]"),
        ],
        ids=lambda value: value if isinstance(value, str) and "." in value else "",
    )
    def test_a_mutant_is_caught_by_few_numbers(self, mutant: str, case: str, most: int, words: str) -> None:
        """The input that is left fails with the mistake planted, and an implementation without it holds there."""
        registry = load()
        planted = registry.mutants[mutant]
        gate = registry.gates[planted.caught_by[0]]
        job = Job(gate, registry.subjects[planted.host], next(c for c in gate.cases if c.name == case))
        options = Options(mutant={"target": planted.target, "patch": planted.patch}, quick=True)
        found = minimise(job, options, registry.subjects)
        assert found.elements_after <= most < found.elements_before
        assert found.judged_beside == "numpy"
        assert words in found.words

    def test_what_does_not_fail_again_is_no_counterexample(self) -> None:
        """A right subject has none."""
        registry = load()
        gate = registry.gates["kl.k1.matches-definition"]
        job = Job(gate, registry.subjects["numpy"], gate.cases[0])
        with pytest.raises(CannotMinimiseError, match="asked again it does not fail"):
            minimise(job, Options(), registry.subjects)

    @pytest.mark.parametrize(
        ("gate", "cause", "words"),
        [
            ("rollout.batched.equals-naive", "bound", "a model"),
            ("kl.k1.matches-definition", "timeout", "failure by timeout"),
        ],
    )
    def test_what_cannot_be_made_small_says_why(self, gate: str, cause: str, words: str) -> None:
        """Models are no arrays, and a hang takes its limit each time."""
        asked = load().gates[gate]
        job = Job(asked, load().subjects["reference"], asked.cases[0])
        verdict = Verdict(gate, "reference", asked.cases[0].name, 1, "fail", cause, "r")
        assert words in reason_against(job, verdict)


class TestCommands:
    """From a failing check to a test in one's own repository."""

    def test_a_failure_ends_as_a_test(self, tmp_path: Path) -> None:
        """`check` names the file, `replay` fails and then holds, and the emitted test needs no Gates."""
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        done = gates("check", "advantages.matches-definition", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        assert done.returncode == 1
        assert "(96 → 2 numbers): advantage error in 2u·S" in done.stdout
        (results,) = (tmp_path / "o").glob("*.jsonl")
        (record,) = read_results(results).counterexamples
        assert (record.elements_before, record.elements_after, record.finished) == (96, 2, True)
        line = next(x for x in results.read_text().splitlines() if '"record": "counterexample"' in x)
        jsonschema.validate(json.loads(line), json.loads((ROOT / "results" / "schema.json").read_text()))
        file = f"o/{record.file}"
        again = gates("replay", file, cwd=tmp_path)
        assert again.returncode == 1
        assert again.stdout.startswith("fails: mine · advantages.matches-definition · group-ddof1-add-mean-float")
        assert gates("replay", file, "--subject", "numpy", cwd=tmp_path).returncode == 0
        assert gates("replay", file, "--subject", "reference", "--json", cwd=tmp_path).returncode in {0, 3}
        emitted = gates("replay", file, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path)
        assert emitted.returncode == 0, emitted.stderr
        test = tmp_path / "tests" / "test_bug.py"
        assert "import gates" not in test.read_text()
        assert run_test(test) == 1
        (tmp_path / "mine.py").write_text(WRONG_DDOF.replace("ddof=0", "ddof=ddof"))
        assert run_test(test) == 0
        assert gates("replay", file, cwd=tmp_path).returncode == 0
        refused = gates("replay", file, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path)
        assert (refused.returncode, "exists; name another" in refused.stderr) == (2, True)

    def test_a_claim_of_several_calls_asks_gates_again(self, tmp_path: Path) -> None:
        """Where no single output is compared, the test has the file beside it and asks the gate."""
        (tmp_path / "mine.py").write_text(POISONED)
        done = gates("check", "loss.padding-is-inert", "--quick", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        assert done.returncode == 1
        (file,) = (tmp_path / "o").glob("*/*.safetensors")
        assert elements(read(file).inputs) <= 10
        assert gates("replay", str(file), "--emit-test", "--out", "test_bug.py", cwd=tmp_path).returncode == 0
        assert (tmp_path / "test_bug.safetensors").is_file()
        assert run_test(tmp_path / "test_bug.py") == 1
        assert run_test(tmp_path / "test_bug.py", "numpy") == 0

    def test_a_library_that_is_not_installed_here_is_told(self, tmp_path: Path) -> None:
        """The subject is skipped, and the line says which interpreter runs the file and what to do."""
        (tmp_path / "mine.py").write_text("import no_such_library\nOPS = {}\n")
        done = gates("check", "kl.k1*", "--quick", "--subject", "./mine.py", "--out", "o", cwd=tmp_path)
        assert done.returncode == 3
        assert f"{sys.executable} runs the file: install what it imports there" in " ".join(done.stdout.split())

    def test_the_command_to_replay_names_the_interpreter(self, tmp_path: Path) -> None:
        """As it stands it runs, and so does the emitted test, which finds the subject beside itself."""
        (tmp_path / "mine.py").write_text(POISONED)
        python = ["--python", sys.executable]
        options = ["loss.padding-is-inert", "--quick", "--subject", "./mine.py", "--out", "o", *python]
        done = gates("check", *options, cwd=tmp_path)
        (line,) = (line for line in done.stdout.splitlines() if line.startswith("  gates replay "))
        assert line.endswith(f" --python {sys.executable}")
        file = line.split()[2]
        assert gates("replay", file, *python, "--emit-test", "--out", "tests/test_bug.py", cwd=tmp_path).returncode == 0
        text = (tmp_path / "tests" / "test_bug.py").read_text()
        assert "Path(__file__).parent / '../mine.py'" in text
        assert str(tmp_path) not in text

    def test_nothing_is_minimised_unless_wanted(self, tmp_path: Path) -> None:
        """`--no-minimise` writes no file and no line."""
        (tmp_path / "mine.py").write_text(WRONG_DDOF)
        command = ["check", "advantages.matches-definition", "--subject", "./mine.py", "--out", "o", "--no-minimise"]
        assert gates(*command, cwd=tmp_path).returncode == 1
        assert [path.suffix for path in (tmp_path / "o").iterdir()] == [".jsonl"]

    def test_a_few_failures_of_a_run_are_enough(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The others are named with the reason."""
        monkeypatch.setattr(minimising, "MOST", 0)
        gate = load().gates["kl.k1.matches-definition"]
        job = Job(gate, load().subjects["numpy"], gate.cases[0])
        maker = minimising.Minimiser([job], Options(), load().subjects, tmp_path)
        maker.note(Verdict(gate.id, "numpy", gate.cases[0].name, 1, "fail", "bound", "r"))
        maker.note(Verdict("other", "numpy", "c", 1, "fail", "departs", "documented"))
        assert [reason for _, _, _, reason in maker.run()] == ["only the first 0 failures of a run are minimised"]

    def test_a_file_of_data_does_not_choose_what_runs(self, tmp_path: Path) -> None:
        """A subject's file outside this folder has to be named, and no text of the file becomes code of the test."""
        (tmp_path / "here").mkdir()
        (tmp_path / "evil.py").write_text("open('ran', 'w')")
        evil = {
            **_fields(SOME),
            "entry": str(tmp_path / "evil.py"),
            "subject": 'x"""\nopen("ran", "w")\n"""',
            "words": '"""',
        }
        write(tmp_path / "here" / "c.safetensors", Counterexample(**evil))
        done = gates("replay", "c.safetensors", cwd=tmp_path / "here")
        assert (done.returncode, "is not below this folder" in " ".join(done.stderr.split())) == (2, True)
        options = ["--subject", "numpy", "--emit-test", "--out", "test_c.py"]
        gates("replay", "c.safetensors", *options, cwd=tmp_path / "here")
        run_test(tmp_path / "here" / "test_c.py")
        assert not list(tmp_path.rglob("ran"))

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["replay", "none"], "cannot read none"),
            (["replay", "c.safetensors"], "/nowhere/mine.py, which is not there"),
            (["replay", "c.safetensors", "--subject", "nobody"], "must be one of"),
            (["replay", "c.safetensors", "--subject", "numpy", "--out", "x"], "give both"),
            (["replay", "other.safetensors", "--subject", "numpy"], "gate 'gone' of the counterexample does not exist"),
        ],
        ids=["no file", "no subject", "nobody", "out alone", "no gate"],
    )
    def test_a_mistake_is_one_sentence(self, tmp_path: Path, arguments: list[str], words: str) -> None:
        """Exit code 2 and no traceback."""
        write(tmp_path / "c.safetensors", SOME)
        write(tmp_path / "other.safetensors", Counterexample(**{**_fields(SOME), "gate": "gone"}))
        done = gates(*arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr


def _fields(found: Counterexample) -> dict[str, Any]:
    return {name: getattr(found, name) for name in Counterexample.__slots__}
