"""`gates identify`, and the diagnosis that `gates check` prints for a wrong op."""

import json
from pathlib import Path

import pytest
from command_line import here

from gates.results.jsonl import read

LOSS = """
import numpy as np

def policy_loss(*, policy, old, advantages, mask, epsilon_low, epsilon_high, **_):
    counts = {mask}
    tokens = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    r, a = np.exp(policy - old), advantages[:, None]
    free, held = r * a, np.clip(r, 1 - epsilon_low, 1 + epsilon_high) * a
    weight = counts / tokens / len(policy) {more}
    loss = -(np.minimum(free, held) * weight).sum()
    gradient = -np.where(free <= held, free, 0.0) * weight
    return {{"loss": float(loss), "gradient": gradient.astype(policy.dtype)}}

OPS = {{"policy_loss": policy_loss}}
CONVENTIONS = {{"policy_loss": {{
    "algorithm": ("grpo",), "kl_ratio": ("none",), "clipped": (True,), "weights": (False,), "kl_estimator": (None,), "rows": ("mask",),
}}}}
"""
IN_HALF = LOSS.format(mask="mask", more="").replace("float(loss)", "float(np.float16(loss))")
IN_HALF = IN_HALF.replace("gradient.astype(", "gradient.astype(np.float16).astype(")
CHECK = ("check", "loss.grpo.matches-definition", "--quick", "--jobs", "1", "--no-minimise")


def subject(folder: Path, mask: str = "mask", more: str = "") -> None:
    (folder / "mine.py").write_text(LOSS.format(mask=mask, more=more))


class TestIdentify:
    """The command without conventions."""

    def test_a_preset_is_named(self, tmp_path: Path) -> None:
        """A correct loss is named with the settings of libraries that choose it."""
        subject(tmp_path)
        done = here("identify", "./mine.py", "policy_loss", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert 'policy_loss of mine  computes: grpo (TRL loss_type="grpo"' in done.stdout

    def test_a_mistake_is_named_with_its_change(self, tmp_path: Path) -> None:
        subject(tmp_path, mask="np.roll(mask, 1, axis=1)")
        done = here("identify", "./mine.py", "policy_loss", "--json", cwd=tmp_path)
        (finding,) = json.loads(done.stdout)
        assert finding["kind"] == "mistake"
        assert "completion mask shifted by one position to the right" in finding["computes"]

    def test_an_unknown_formula_is_not_named(self, tmp_path: Path) -> None:
        """The exit code is 1."""
        subject(tmp_path, more="* (1 + 0.3 * np.sin(7 * policy))")
        done = here("identify", "./mine.py", "policy_loss", cwd=tmp_path)
        assert done.returncode == 1
        assert "computes: nothing that is known" in done.stdout

    def test_half_precision_tells_no_formula(self, tmp_path: Path) -> None:
        """`identify` and `check` say so in the same words, and the op is wrong."""
        (tmp_path / "mine.py").write_text(IN_HALF)
        done = here("identify", "./mine.py", "policy_loss", cwd=tmp_path)
        assert "policy_loss of mine  cannot be told from half-precision arithmetic of " in done.stdout
        assert done.returncode == 1  # not named
        done = here(*CHECK, "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1
        shown = " ".join(done.stdout.split())
        assert "policy_loss[grpo] cannot be told from half-precision arithmetic of what is asked" in shown
        assert "WRONG" in shown

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (("./mine.py", "polcy_loss"), 2, "'polcy_loss' cannot be identified; did you mean 'policy_loss'?"),
            (("./other.py", "policy_loss"), 2, "other.py"),
            (("./empty.py", "policy_loss"), 3, "empty does not have policy_loss"),
        ],
    )
    def test_bad_input_is_one_sentence(
        self, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
    ) -> None:
        subject(tmp_path)
        (tmp_path / "empty.py").write_text("OPS = {'token_kl': print}\n")
        done = here("identify", *arguments, cwd=tmp_path)
        assert done.returncode == code
        assert message in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


class TestCheck:
    """`gates check` on a wrong definition."""

    def test_the_diagnosis_is_printed_and_recorded(self, tmp_path: Path) -> None:
        subject(tmp_path, mask="np.roll(mask, 1, axis=1)")
        done = here(*CHECK, "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1
        assert "computes: completion mask shifted by one" in done.stdout
        (file,) = (tmp_path / "results" / "runs").glob("*.jsonl")
        (diagnosis,) = read(file).diagnoses
        assert (diagnosis.op, diagnosis.kind, diagnosis.inputs) == ("policy_loss[grpo]", "mistake", 8)
        assert diagnosis.rho <= 3.0
        assert diagnosis.next_rho >= 30.0

    def test_a_subject_that_dies_in_a_designed_call_keeps_its_verdicts(self, tmp_path: Path) -> None:
        """The run ends without a diagnosis."""
        subject(tmp_path, mask="mask[:, ::-1]")
        file = tmp_path / "mine.py"
        file.write_text(
            file.read_text().replace(
                "    counts =", "    if policy.shape == (4, 7): import os; os._exit(3)\n    counts ="
            )
        )
        done = here(*CHECK, "--subject", "./mine.py", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
