"""Ways of training in PyTorch: each is recorded rightly, or refused in one sentence with the remedy."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from scripted import ONE_THREAD, SCRIPTS, interpreter, run, run_torch

from gates.xray import recording, step
from gates.xray.picture import read
from gates.xray.recording import Recording
from gates_reference import tiny

SCRIPT = str(SCRIPTS / "torch_kinds.py")


def recorded(folder: Path, kind: str) -> tuple[Recording, str]:
    """Return what a kind of the script recorded, and what it printed."""
    (printed,) = run_torch(folder, [SCRIPT, kind])
    return recording.load(folder), printed


@pytest.mark.slow
class TestRefused:
    """Nothing is recorded, and the script trains to its end."""

    @pytest.mark.parametrize(
        ("kind", "reason", "remedy"),
        [
            ("in backward", "the optimizer steps inside of the backward pass", "call step() after backward()"),
            pytest.param(
                "by hand",
                "the optimizer steps inside of the backward pass",
                "call step() after backward()",
                marks=pytest.mark.long,
            ),
            pytest.param(
                "closure",
                "the gradient is computed inside of optimizer.step",
                "call backward() before it, and step() without a closure",
                marks=pytest.mark.long,
            ),
        ],
    )
    def test_the_sentence_has_the_remedy(self, kind: str, reason: str, remedy: str, tmp_path: Path) -> None:
        """It is said once, on the screen and in the recording; the kind `plain` is the remedy."""
        files, printed = recorded(tmp_path, kind)
        (sentence,) = files.cannot
        assert sentence.startswith(reason)
        assert sentence.endswith(remedy)
        assert printed.count(sentence) == 1
        assert printed.splitlines()[-1].startswith(("trained", "gates xray: "))
        assert files.updates == ()


@pytest.mark.slow
class TestRecorded:
    """Two updates are explained, and the script trains as without the recorder."""

    @pytest.mark.parametrize(
        "kind",
        [
            "compiled",
            pytest.param("plain", marks=pytest.mark.long),
            pytest.param("frees gradients", marks=pytest.mark.long),
            pytest.param("fused", marks=pytest.mark.long),
            pytest.param("raises", marks=pytest.mark.long),
        ],
    )
    def test_the_gradient_is_explained(self, kind: str, tmp_path: Path) -> None:
        """Compilation is off meanwhile; a fused optimizer may free gradients; a pass that raised is over."""
        files, printed = recorded(tmp_path, kind)
        assert files.cannot == ()
        assert [step.step(update).fit.unexplained < 1e-5 for update in files.updates] == [True, True]
        assert "raised an exception that was silenced" not in printed
        trained = next(line for line in printed.splitlines() if line.startswith("trained"))
        if kind == "raises":
            alone = subprocess.run(
                [interpreter(), SCRIPT, kind],
                env={**os.environ, **ONE_THREAD},
                capture_output=True,
                text=True,
                check=True,
            )
            assert trained == alone.stdout.strip()

    @pytest.mark.parametrize(("kind", "shift"), [("unshifted", 0), pytest.param("padding", 1, marks=pytest.mark.long)])
    def test_scores_that_lie_elsewhere_are_named(self, kind: str, shift: int, tmp_path: Path) -> None:
        """Padding that the mask hides trains; in one kind all log-probs are taken at the tokens' own positions too."""
        files, _ = recorded(tmp_path, kind)
        assert [update.document.shift for update in files.updates] == [shift, shift]
        assert [step.step(update).fit.unexplained < 1e-5 for update in files.updates] == [True, True]
        shown = read(tmp_path).updates[0]
        padding = shown.of("padding")
        assert padding is not None
        assert padding.numbers["trains"] == sum(6 - length for length in (4, 6, 5, 3, 2, 6, 3, 5))
        assert (shown.of("shift") is not None) == (shift == 0)

    @pytest.mark.parametrize("kind", ["dropout", pytest.param("dropout inside", marks=pytest.mark.long)])
    def test_dropout_is_named(self, kind: str, tmp_path: Path) -> None:
        """The reading says that the columns are computed without it, be it a layer or a number of a layer, as in attentions."""
        recorded(tmp_path, kind)
        explained = read(tmp_path).updates[0].of("explained")
        assert explained is not None
        assert explained.kind == "attention"
        assert "dropout of 0.1, which the columns are computed without" in explained.remedy
        assert "the pass that trains has chance in it, such as dropout of 0.1" in explained.sentence


@pytest.mark.long
def test_adapters_of_peft(tmp_path: Path) -> None:
    """TRL's GRPO with LoRA: only adapters are fitted, and they explain both gradients."""
    script = str(SCRIPTS.parents[3] / "examples" / "xray" / "trl_trainers.py")
    run(tmp_path / "xray", [interpreter("trl"), script, "grpo-lora", str(tiny.build({})), str(tmp_path / "out")])
    files = recording.load(tmp_path / "xray")
    assert [update.document.trained.numbers for update in files.updates] == [1792, 1792]
    assert [step.step(update).fit.unexplained < 1e-5 for update in files.updates] == [True, True]
