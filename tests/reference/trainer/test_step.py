"""One optimizer step: only adapters train, the base keeps its bits, nothing leaks into the next call."""

import numpy as np
import pytest

from gates.families.rollout.prompts import recipe, token_ids
from gates.subjects.mlx_trainer import subject
from gates_reference.trainer import logprobs, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.algorithms import grpo
from gates_reference.trainer.engine import step

ADAPTER = {"rank": 2, "scale": 2.0, "seed": 1, "b_std": 0.1}
ADVANTAGES = np.array([1.0, -1.0, 0.5, -0.5])


@pytest.fixture(autouse=True)
def advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advantages by hand: these tests are about the step, the kernels have their own."""
    monkeypatch.setattr(grpo.Grpo, "advantages", lambda *_, **__: ADVANTAGES.astype(np.float32))


def _batch(bits: int = 32) -> dict:
    prompts = token_ids(recipe(1, 2))
    run = subject.rollout(
        model={"bits": bits},
        prompts=prompts,
        samples=2,
        max_tokens=6,
        temperature=1.0,
        seed=1,
        eos_ids=np.arange(30, 60),
    )
    rows = [prompts[i] for i, _ in run["rows"]]
    return {"model": {"bits": bits}, "prompt_tokens": rows, "tokens": run["tokens"], "lengths": run["lengths"]}


def _step(batch: dict, **changes: object) -> dict:
    keywords = {
        "adapter": ADAPTER,
        "rewards": np.arange(4.0),
        "group_size": 2,
        "learning_rate": 1e-2,
        "beta": 0.04,
        "temperature": 1.0,
    }
    return subject.train_step(**batch, **keywords | changes)


@pytest.mark.parametrize("bits", [32, 4])
def test_only_adapters_train(bits: int) -> None:
    """The names that train and the names that changed are the A and B of every linear layer; the base has the same bits."""
    result = _step(_batch(bits))
    layers = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
    expected = sorted(f"model.layers.{n}.{name}.{x}" for n in range(2) for name in layers for x in ("lora_a", "lora_b"))
    assert result["trainable"] == expected
    assert result["changed"] == expected
    assert result["base_before"] == result["base_after"]
    assert result["adapter_change"] == pytest.approx(1e-2, rel=1e-3)  # Adam's first step is the learning rate


def test_numbers_before_the_update() -> None:
    """On-policy the mean ratio is exactly 1, the loss is -mean A + beta KL, and the KL to the base is positive."""
    batch = _batch()
    result = _step(batch)
    assert result["ratio_mean"] == 1.0
    assert result["kl_mean"] > 1e-4
    assert result["gradient_norm"] > 1e-3
    plain = _step(batch, beta=0.0)
    assert plain["loss"] == pytest.approx(-ADVANTAGES.mean(), abs=1e-7)
    assert plain["advantages"].tolist() == ADVANTAGES.tolist()


def test_an_adapter_that_starts_at_zero_has_no_kl() -> None:
    """With B = 0 the policy is the base: KL exactly 0, and only B gets a gradient in the first step."""
    result = _step(_batch(), adapter=ADAPTER | {"b_std": 0.0})
    assert result["kl_mean"] == 0.0
    assert all(name.endswith("lora_b") for name in result["changed"])
    assert result["changed"]


def test_step_does_not_affect_the_next_call() -> None:
    """Log-probs of the base and of the adapter after a step are bit for bit those before, and so is a second step."""
    batch = _batch()

    def scores() -> list[np.ndarray]:
        return [subject.completion_logprobs(**batch, temperature=1.0, adapter=a)["logprobs"] for a in (None, ADAPTER)]

    before, first = scores(), _step(batch)
    assert all(np.array_equal(a, b) for a, b in zip(before, scores(), strict=True))
    again = _step(batch)
    assert (again["loss"], again["gradient_norm"]) == (first["loss"], first["gradient_norm"])


def test_the_gradient_is_the_slope_of_the_loss() -> None:
    """Moving one adapter value by h changes the sum of log-probs by its gradient times h."""
    loaded = models.load({}).model
    batch = _batch()
    packed = logprobs.pack(batch["prompt_tokens"], batch["tokens"], batch["lengths"])

    def total() -> object:
        return logprobs.of_model(loaded, packed, 1.0)[0].sum()

    with lora.attached(loaded, ADAPTER):
        lora.freeze(loaded)
        _, gradient = step.loss_and_grad(loaded, total)
        layer = lora.adapters(loaded)["1.mlp.up_proj"]
        slope = float(gradient["model"]["layers"][1]["mlp"]["up_proj"]["lora_b"][0, 3])
        values, start = [], layer.lora_b
        for h in (-1e-2, 1e-2):
            moved = np.array(start)
            moved[0, 3] += h
            layer.lora_b = type(start)(moved)
            values.append(float(total()))
    assert abs(slope) > 1e-2
    assert (values[1] - values[0]) / 2e-2 == pytest.approx(slope, rel=1e-2)
