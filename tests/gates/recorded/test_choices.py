"""A recorded step of another choice differs, and the finding says what to write; a mistake is wrong."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import here
from steps import EXAMPLE, verdicts, write

from gates.recorded.finding import Finding
from gates_reference.oracle import losses
from gates_reference.oracle import ratio as oracle

STEP = EXAMPLE.recorded("none")
SETTINGS: dict[str, Any] = {
    "algorithm": "grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "delta": None,
    "beta": 0.04,
    "kl_ratio": "none",
    "kl_estimator": "k3",
}
CONSTANT = {"algorithm": "dr_grpo", "max_length": 1024}
CHOICES = {  # what the file's code computes; what it says; what the finding tells to write
    "dr-grpo": (CONSTANT, {"max_length": "1024"}, {"aggregation": "constant"}),
    "dr-grpo, length unwritten": (CONSTANT, {}, {"aggregation": "constant", "max_length": "1024"}),
    "k1": ({"kl_estimator": "k1"}, {}, {"kl_estimator": "k1"}),
    "dapo": (
        {"algorithm": "dapo", "dapo_denominator": "global"},
        {},
        {"aggregation": "token-mean", "dapo_denominator": "global"},
    ),
    "gspo": ({"algorithm": "gspo"}, {}, {"ratio_level": "seq_mean"}),
    "kl over tokens": ({"kl_aggregation": "token-mean"}, {}, {"kl_aggregation": "token-mean"}),
    "two choices": (
        {"algorithm": "luspo", "ratio_level": "token", "kl_estimator": "k1"},
        {},
        {"aggregation": "row-sum", "kl_estimator": "k1"},
    ),
}


def computed(settings: dict[str, Any], times: int = 1) -> dict[str, np.ndarray]:
    """Return the example's step, its rows repeated, with loss and gradient of a definition, rounded to float32."""
    arrays = {name: np.concatenate([x] * times) for name, x in STEP.items() if x.ndim}
    names = ("policy", "old", "reference", "advantages", "mask")
    result = losses.policy_loss(**{name: arrays[name] for name in names}, **{**SETTINGS, **settings})
    loss = {"loss": np.asarray(result.loss, np.float32), "gradient": result.gradient.astype(np.float32)}
    return {**arrays, "metric.kl": STEP["metric.kl"], **loss}


def of_loss(path: Path) -> Finding:
    """Return the finding on the loss."""
    return verdicts(path)["policy_loss"]


LARGE = {"k1", "dapo"}  # large steps that `make test` tries, one of a KL and one of a mean; `make record` tries all


@pytest.mark.parametrize(
    ("times", "name"),
    [
        pytest.param(
            times, name, marks=pytest.mark.long if times > 1 and name not in LARGE else (), id=f"{size}-{name}"
        )
        for times, size in ((1, "small"), (16, "large"))
        for name in CHOICES
    ],
)
def test_another_choice_differs_and_is_declared(tmp_path: Path, name: str, times: int) -> None:
    """With the settings that the finding names the same file is correct."""
    settings, said, declare = CHOICES[name]
    if times > 1 and len(settings) > 2:
        pytest.skip("pairs of choices are searched in small steps")
    path = write(tmp_path / "step.safetensors", computed(settings, times), said, without=("metric.kl",))
    finding = of_loss(path)
    assert finding.status == "differs", finding
    assert finding.declare == f"write {', '.join(f'`{k}` {v!r}' for k, v in declare.items())} if it is meant"
    write(path, computed(settings, times), {**said, **declare}, without=("metric.kl",))
    assert of_loss(path).status == "correct"


def test_a_constant_added_to_counts_is_declared(tmp_path: Path) -> None:
    """Its size is solved for, and the setting that says it is named."""
    tensors = computed({"count_eps": 1e-3})
    finding = of_loss(write(tmp_path / "step.safetensors", tensors, without=("metric.kl",)))
    assert (finding.status, finding.declare) == ("differs", "write `count_eps` '0.001' if it is meant")
    path = write(tmp_path / "step.safetensors", tensors, {"count_eps": "0.001"}, without=("metric.kl",))
    assert of_loss(path).status == "correct"


def test_a_choice_with_a_mistake_is_wrong(tmp_path: Path) -> None:
    """The gradient of another row's tokens beside another choice."""
    tensors = computed({"kl_estimator": "k1"})
    tensors["gradient"][3] *= 2
    assert of_loss(write(tmp_path / "step.safetensors", tensors)).status == "wrong"
    tensors = computed({"kl_estimator": "k1"})
    tensors["gradient"][~tensors["mask"]] = 0.01
    assert of_loss(write(tmp_path / "step.safetensors", tensors)).status == "wrong"


def test_a_step_without_a_clip_differs(tmp_path: Path) -> None:
    """The widths that mean nothing without a clip are to be left out."""
    path = write(tmp_path / "step.safetensors", mistake="clip")
    finding = of_loss(path)
    assert (finding.status, finding.declare) == (
        "differs",
        "write `bound` 'none' and leave out `epsilon_low` and `epsilon_high` if it is meant",
    )
    left = ("epsilon_low", "epsilon_high")
    assert of_loss(write(path, settings={"bound": "none"}, mistake="clip", without=left)).status == "correct"


def test_a_loss_alone_differs_by_its_diagnosis(tmp_path: Path) -> None:
    """Few tokens, one number."""
    tensors = computed({"kl_estimator": "k1"})
    finding = of_loss(write(tmp_path / "step.safetensors", tensors, without=("gradient",)))
    assert (finding.status, finding.declare) == ("differs", "write `kl_estimator` 'k1' if it is meant")


def test_a_declared_kl_mean_is_to_be_left_out(tmp_path: Path) -> None:
    """The KL is averaged as the rest, though another mean is written."""
    finding = of_loss(write(tmp_path / "step.safetensors", computed({}), {"kl_aggregation": "token-mean"}))
    assert (finding.status, finding.declare) == ("differs", "leave out `kl_aggregation` if it is meant")


def test_advantages_of_another_convention_differ(tmp_path: Path) -> None:
    """With what the finding says to write they are correct; an unknown formula is wrong."""
    path = write(tmp_path / "step.safetensors", mistake="ddof")
    finding = verdicts(path)["group_advantages"]
    assert (finding.status, finding.declare) == ("differs", "write `ddof` '0' if it is meant")
    assert verdicts(write(path, settings={"ddof": "0"}, mistake="ddof"))["group_advantages"].status == "correct"
    tensors = {"advantages": np.float32(2) * STEP["advantages"]}
    assert verdicts(write(path, tensors))["group_advantages"].status == "wrong"


def test_weights_of_another_correction_differ(tmp_path: Path) -> None:
    """Ratios that are left out beyond the bounds, where they should be truncated; without their bound they are wrong."""
    sampling = np.minimum(STEP["old"] + np.float32(0.1) * STEP["policy"], 0.0).astype(np.float32)
    written = {"correction": "tis", "correction_level": "token", "correction_high": "1.05"}
    path = tmp_path / "step.safetensors"
    for correction, high, status in (("tis", 1.05, "correct"), ("mis", 1.05, "differs"), ("tis", 9.0, "wrong")):
        weights = oracle.importance_weights(
            STEP["old"], sampling, STEP["mask"], correction=correction, level="token", c_min=None, c_max=high
        )
        tensors = {"sampling": sampling, "weights": weights.astype(np.float32)}
        assert verdicts(write(path, tensors, written))["importance_weights"].status == status


@pytest.mark.parametrize(("options", "code"), [((), 1), (("--fail-on", "wrong"), 0), (("--strict",), 1)])
def test_the_screen_the_record_and_the_exit_code(tmp_path: Path, options: tuple[str, ...], code: int) -> None:
    """Blue words, named; `--fail-on wrong` lets another choice pass."""
    write(tmp_path / "step.safetensors", computed({"kl_estimator": "k1"}))
    done = here("judge", "step.safetensors", *options, cwd=tmp_path)
    words = " ".join(done.stdout.split())
    assert done.returncode == code, words
    assert "DIFFERS policy_loss[grpo] computes: KL by k1 (asked: k3); write `kl_estimator` 'k1' if it is meant" in words
    assert words.endswith(f"exit {code}: 1 differs, 2 correct")
    record = json.loads(here("judge", "step.safetensors", *options, "--json", cwd=tmp_path).stdout)
    finding = next(item for item in record["quantities"] if item["quantity"] == "policy_loss[grpo]")
    assert (finding["grade"], finding["declare"]) == ("differs", "write `kl_estimator` 'k1' if it is meant")
    assert record["exit_code"] == code


def test_a_single_number_is_not_a_pair_of_choices(tmp_path: Path) -> None:
    """Thousands of pairs would give any loss without a gradient."""
    for loss in (0.0123, 0.0456, 0.0789, 0.123):
        finding = of_loss(write(tmp_path / "step.safetensors", {"loss": np.float32(loss)}, without=("gradient",)))
        assert (finding.status, " · " in finding.computes) == ("wrong", False), finding
