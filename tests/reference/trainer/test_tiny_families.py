"""The families of tiny models: mlx-lm reads each one, decodes with its caches what a full forward gives, and differentiates it."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models import cache as caches
from mlx_lm.models.base import create_causal_mask
from mlx_lm.models.switch_layers import QuantizedSwitchLinear

from gates_reference import tiny, tiny_families, tiny_mlx_lm

FAMILIES = sorted(tiny_families.FAMILIES)
HYBRID = ["qwen3_5", "qwen3_next"]
EXPERTS = ["qwen3_moe", "qwen3_next"]
TEXT = np.random.default_rng(0).integers(3, 320, (2, 40)).astype(np.int32)

# Decode against full forward: 0 with MLX's own BLAS, 1e-4 with OpenBLAS (../shared/design/rollouts.md); logits here reach 20.
DECODE_LIMIT = 5e-4

FOLDERS = {  # name and hash of folders built before there were families, at commit 032924a
    "float32": ({}, "02540c1d9cac", "33068b959346"),
    "4-bit": ({"bits": 4}, "a7d2bc97829e", ""),  # its bytes are those of mlx-lm's quantiser
    "wider": ({"seed": 3, "hidden": 64, "heads": 8}, "16911d22a2e6", "7c3984fcc504"),
}


def _load(family: str, **spec: Any) -> Any:
    return mlx_lm.load(str(tiny.build({"family": family, **spec})))[0]


@pytest.mark.parametrize(("spec", "name", "digest"), FOLDERS.values(), ids=FOLDERS)
def test_qwen3_is_what_it_was(spec: dict[str, int], name: str, digest: str) -> None:
    """A spec without a family, or with qwen3, has the folder and the bytes that it had when there was no other."""
    folder = tiny.build({"family": "qwen3", **spec})
    assert folder == tiny.build(spec)
    assert folder.name.startswith(name)
    assert tiny.model_hash(folder).startswith(digest)


def test_an_unknown_family_is_an_error() -> None:
    """The message has the name and the known ones."""
    with pytest.raises(ValueError, match=r"family is 'gpt5', must be one of .*'gemma3_text'"):
        tiny.build({"family": "gpt5"})


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"family": "llama", "window": 8}, "unknown keys .*window.* in the llama spec"),
        ({"family": "qwen3_5", "layers": 1}, "interval"),
        ({"family": "qwen3_moe", "experts": 1}, "experts_per_token is 2"),
    ],
    ids=["other-familys-key", "no-full-attention", "too-few-experts"],
)
def test_an_impossible_spec_is_an_error(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny.build(spec)


@pytest.mark.parametrize("family", FAMILIES)
class TestEveryFamily:
    """What holds for each of them."""

    @pytest.mark.parametrize("bits", [32, 4])
    def test_decode_is_the_full_forward(self, family: str, bits: int) -> None:
        """Token by token with the family's own caches gives the logits of one forward pass, beyond the sliding window too."""
        model = _load(family, bits=bits)
        whole = model(mx.array(TEXT))
        cache = caches.make_prompt_cache(model)
        steps = [model(mx.array(TEXT[:, :12]), cache=cache)]
        steps += [model(mx.array(TEXT[:, n : n + 1]), cache=cache) for n in range(12, TEXT.shape[1])]
        assert float(mx.abs(mx.concatenate(steps, axis=1) - whole).max()) <= DECODE_LIMIT
        assert float(mx.abs(whole).max()) > 3  # logits that say something

    def test_every_parameter_has_a_gradient(self, family: str) -> None:
        """The gradient of a text's likelihood is finite and nowhere all zero."""
        model = _load(family)
        model.unfreeze()
        model.train()

        def loss(module: Any) -> mx.array:
            return nn.losses.cross_entropy(module(mx.array(TEXT[:, :-1])), mx.array(TEXT[:, 1:]), reduction="mean")

        _, gradient = nn.value_and_grad(model, loss)(model)
        for name, value in tree_flatten(gradient):
            assert bool(mx.isfinite(value).all()), name
            assert float(mx.abs(value).max()) > 0, name

    def test_the_first_token_reaches_the_last_logits(self, family: str) -> None:
        """Another first token changes the logits forty tokens later."""
        model = _load(family)
        other = TEXT.copy()
        other[:, 0] += 1
        moved = mx.abs(model(mx.array(other))[:, -1] - model(mx.array(TEXT))[:, -1])
        assert float(moved.max(axis=-1).min()) > 1e-3

    def test_samples_are_neither_certain_nor_uniform(self, family: str) -> None:
        """The mean entropy of the next token lies between 2 and 5 nats at temperature 1; log 320 is 5.8."""
        model = _load(family)
        logits = np.array(model(mx.array(TEXT)), np.float64)
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        p = weights / weights.sum(axis=-1, keepdims=True)
        assert 2 < float(-(p * np.log(p)).sum(axis=-1).mean()) < 5

    def test_config_names_the_family(self, family: str) -> None:
        """The configuration's model type is the family, and four bits say so."""
        config = json.loads((tiny.build({"family": family, "bits": 4}) / "config.json").read_text())
        assert config["model_type"] == family
        assert config["quantization"]["bits"] == 4


class TestAnyFamily:
    """Families of the installed mlx-lm that no line here describes, but for small numbers."""

    @pytest.mark.parametrize("family", ["gemma2", "deepseek_v3", "mamba", "recurrent_gemma"])
    def test_the_folder_is_a_function_of_the_spec(
        self, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Built twice it has the same bytes, and MLX's own random numbers go on as if nothing had been drawn."""
        mx.random.seed(5)
        expected = mx.random.uniform(shape=(3,)).tolist()
        mx.random.seed(5)
        digests = []
        for name in ("a", "b"):
            monkeypatch.setenv("GATES_CACHE_DIR", str(tmp_path / name))
            digests.append(tiny.model_hash(tiny.build({"family": family, "seed": 3})))
        assert digests[0] == digests[1]
        assert mx.random.uniform(shape=(3,)).tolist() == expected

    def test_keys_change_the_model(self) -> None:
        """Layers, heads and widths of the spec are those of the model."""
        model = _load("gemma2", layers=3, heads=8, kv_heads=4, hidden=128)
        assert len(model.layers) == 3
        assert model.layers[0].self_attn.q_proj.weight.shape == (8 * 16, 128)
        assert model.layers[0].self_attn.k_proj.weight.shape == (4 * 16, 128)

    def test_a_field_without_a_number_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A new family of mlx-lm says what is missing and where to add it."""
        monkeypatch.setattr(tiny_mlx_lm, "OWN", {})
        with pytest.raises(ValueError, match=r"baichuan_m1 has a field conv_window .*add a small number"):
            tiny.build({"family": "baichuan_m1"})


def test_the_window_forgets() -> None:
    """A sliding layer's output at a position depends on the eight latest positions and on no other."""
    model = _load("gemma3_text", layers=2)
    cache = caches.make_prompt_cache(model)
    assert [type(one).__name__ for one in cache] == ["RotatingKVCache", "KVCache"]
    layer, hidden = model.layers[0], mx.array(np.random.default_rng(1).normal(size=(1, 20, 32)).astype(np.float32))

    def last(x: mx.array) -> mx.array:
        return layer(x, create_causal_mask(20, window_size=8), None)[0, -1]

    for position, counts in ((11, False), (12, True)):  # of 20 positions the last 8 are 12..19
        other = mx.where(mx.arange(20)[None, :, None] == position, hidden + 1.0, hidden)
        assert bool((mx.abs(last(other) - last(hidden)).max() > 0).item()) is counts


@pytest.mark.parametrize("family", HYBRID)
def test_hybrids_keep_a_state(family: str) -> None:
    """The first layer's cache is a recurrent state that nothing can trim, the second's holds keys and values."""
    first, second = caches.make_prompt_cache(_load(family))
    assert (type(first).__name__, type(second).__name__) == ("ArraysCache", "KVCache")
    assert not first.is_trimmable()


@pytest.mark.parametrize("family", EXPERTS)
def test_experts_are_chosen_by_the_token(family: str) -> None:
    """Over a text the router chooses different pairs of the four experts, each expert at some token."""
    model = _load(family)
    hidden = mx.array(np.random.default_rng(2).normal(size=(64, 32)).astype(np.float32))
    chosen = np.argsort(-np.array(model.layers[0].mlp.gate(hidden)), axis=1)[:, :2]
    assert set(chosen.flatten().tolist()) == {0, 1, 2, 3}
    assert len({tuple(sorted(pair)) for pair in chosen.tolist()}) >= 3


@pytest.mark.parametrize("family", EXPERTS)
def test_four_bit_experts_are_quantised_and_routers_keep_eight(family: str) -> None:
    """Experts are mlx-lm's quantised switch layers; the router has 8 bits."""
    mlp = _load(family, bits=4).layers[0].mlp
    assert isinstance(mlp.switch_mlp.gate_proj, QuantizedSwitchLinear)
    assert (mlp.switch_mlp.gate_proj.bits, mlp.gate.bits) == (4, 8)
