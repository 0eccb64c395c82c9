"""Checkpointing block by block: the same gradients, a lower peak, and nothing left when it is off."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import cache as caches

from gates_reference import tiny_families
from gates_reference.trainer import checkpointing, logprobs, lora
from gates_reference.trainer import model as models

pytestmark = pytest.mark.usefixtures("untouched")

FAMILIES = sorted(tiny_families.FAMILIES)


def _model(family: str, bits: int = 32) -> Any:
    model = models.load({"family": family, "bits": bits, "layers": 6}).model
    lora.attach(model, {"seed": 3, "b_std": 0.1, "embeddings": True})
    lora.freeze(model)
    return model


def _gradient(model: Any, length: int) -> tuple[float, dict[str, np.ndarray], int]:
    """The loss, its gradient, and the peak of memory in bytes above what was there."""
    rng = np.random.default_rng(0)
    prompts = [rng.integers(3, 320, n).astype(np.int32) for n in (5, 9)]
    batch = logprobs.pack(prompts, rng.integers(3, 320, (2, length)).astype(np.int32), np.array([length, length - 7]))

    def loss() -> mx.array:
        return logprobs.scored(model, batch, 1.0).values.sum()

    mx.eval(model.parameters())
    mx.reset_peak_memory()
    start = mx.get_active_memory()
    value, gradient = nn.value_and_grad(model, loss)()
    mx.eval(value, gradient)
    peak = mx.get_peak_memory() - start
    return float(value), {name: np.array(x) for name, x in tree_flatten(gradient)}, peak


@pytest.mark.parametrize("bits", [32, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_same_gradients_in_less_memory(family: str, bits: int) -> None:
    """Loss and gradients agree within rounding at 6 blocks and 200 tokens, and the peak falls by at least a third."""
    model = _model(family, bits)
    value, plain, peak = _gradient(model, 200)
    with checkpointing.per_layer(model):
        other, checkpointed, lower = _gradient(model, 200)
    assert other == pytest.approx(value, rel=1e-6)
    assert checkpointed.keys() == plain.keys()
    for name, want in plain.items():
        assert np.abs(want).max() > 0, name
        assert np.abs(checkpointed[name] - want).max() <= 1e-4 * np.abs(want).max(), name
    assert lower < 0.67 * peak


def test_nothing_is_left() -> None:
    """Inside, blocks are still of their class and parameters have their names; afterwards blocks have their very class."""
    model = _model("gemma3_text")
    classes, names = [type(block) for block in model.layers], [name for name, _ in tree_flatten(model.parameters())]
    with checkpointing.per_layer(model):
        assert checkpointing.is_on(model)
        assert all(isinstance(block, plain) for block, plain in zip(model.layers, classes, strict=True))
        assert [name for name, _ in tree_flatten(model.parameters())] == names
    assert not checkpointing.is_on(model)
    assert [type(block) for block in model.layers] == classes


def test_another_model_of_the_same_class_is_not_touched() -> None:
    one, two = _model("llama"), models.load({"family": "llama", "seed": 1}).model
    checkpointing.on(one)
    assert not checkpointing.is_on(two)
    checkpointing.on(one)  # twice is once
    checkpointing.off(one)
    assert not checkpointing.is_on(one)


def test_it_lasts_through_a_second_block_of_code() -> None:
    """`per_layer` inside `on` leaves it on."""
    model = _model("llama")
    checkpointing.on(model)
    with checkpointing.per_layer(model):
        pass
    assert checkpointing.is_on(model)
    checkpointing.off(model)


@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "qwen3_5"])
def test_decoding_with_a_cache_is_untouched(family: str) -> None:
    """A forward pass that fills a cache gives the same logits, and the same ones after a step, with and without."""
    model, ids = _model(family), mx.array(np.random.default_rng(1).integers(3, 320, (2, 12)).astype(np.int32))

    def decoded() -> np.ndarray:
        cache = caches.make_prompt_cache(model)
        first = model(ids, cache=cache)
        return np.array(mx.concatenate([first, model(ids[:, :1], cache=cache)], axis=1))

    plain = decoded()
    with checkpointing.per_layer(model):
        assert np.array_equal(decoded(), plain)


def test_no_array_of_a_trace_stays_in_the_model() -> None:
    """After a gradient the parameters are the very arrays that they were."""
    model = _model("qwen3_5")
    before = {name: id(x) for name, x in tree_flatten(model.trainable_parameters()) if ".layers." in name}
    held = list(tree_flatten(model.trainable_parameters()))  # keeps the ids taken
    with checkpointing.per_layer(model):
        states = checkpointing.recomputed(model.layers[0], type(model.layers[0]).__call__)
        mx.eval(states(model.layers[0].trainable_parameters(), mx.ones((1, 4, 32)), mask=None, cache=None))
    after = {name: id(x) for name, x in tree_flatten(model.trainable_parameters()) if ".layers." in name}
    assert after == before
    assert held
