"""Adapters of every kind on every family: found by themselves, trained alone, gone without a trace."""

from typing import Any, ClassVar

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from gates_reference import tiny_families
from gates_reference.trainer import checkpointing, heads, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.adapters import dropout, layers, settings

pytestmark = pytest.mark.usefixtures("untouched")

FAMILIES = sorted(tiny_families.FAMILIES)
EXPERTS = ["qwen3_moe", "qwen3_next"]
DENSE = [family for family in FAMILIES if family not in EXPERTS]
IDS = mx.array(np.random.default_rng(0).integers(3, 320, (2, 24)).astype(np.int32))
START = {"seed": 3, "b_std": 0.1}

ATTENTION = [f"self_attn.{name}_proj" for name in "qkvo"]
MLP = [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
SWITCH = [f"mlp.switch_mlp.{name}_proj" for name in ("gate", "up", "down")]
SHARED = [f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down")]
NEXT = [f"linear_attn.{name}" for name in ("in_proj_ba", "in_proj_qkvz", "out_proj")]
GATED = [f"linear_attn.{name}" for name in ("in_proj_a", "in_proj_b", "in_proj_qkv", "in_proj_z", "out_proj")]
BLOCKS = {  # the projections of the two blocks of each family, as its paper draws them
    "qwen3": (ATTENTION + MLP, ATTENTION + MLP),
    "llama": (ATTENTION + MLP, ATTENTION + MLP),
    "gemma3_text": (ATTENTION + MLP, ATTENTION + MLP),
    "qwen3_moe": (ATTENTION + SWITCH, ATTENTION + SWITCH),
    "qwen3_next": (NEXT + SWITCH + SHARED, ATTENTION + SWITCH + SHARED),
    "qwen3_5": (GATED + MLP, ATTENTION + MLP),
}
KINDS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "lora": (FAMILIES, {}),
    "lora-embeddings": (FAMILIES, {"embeddings": True}),
    "lora-routers": (EXPERTS, {"routers": True}),
    "dora": (DENSE, {"kind": "dora"}),
    "dora-attention": (EXPERTS, {"kind": "dora", "targets": ["o_proj", "v_proj"]}),
    "dora-embeddings": (DENSE, {"kind": "dora", "embeddings": True}),
}
CASES = [
    pytest.param(family, bits, spec, id=f"{family}-{bits}-{kind}")
    for kind, (families, spec) in KINDS.items()
    for family in families
    for bits in (32, 4)
    if (kind, bits) != ("dora-embeddings", 4)  # mlx-lm has none for a quantised table
]


def _model(family: str, bits: int = 32) -> Any:
    return models.load({"family": family, "bits": bits}).model


class TestTargets:
    """Which modules are found."""

    @pytest.mark.parametrize("bits", [32, 4])
    @pytest.mark.parametrize("family", FAMILIES)
    def test_every_projection_of_every_block(self, family: str, bits: int) -> None:
        """Without names, all projections of each block, experts and linear attention too, and no router."""
        found = lora.find(_model(family, bits), settings.Settings())
        assert set(found) == {f"{n}.{name}" for n, block in enumerate(BLOCKS[family]) for name in block}

    @pytest.mark.parametrize(
        ("spec", "expected"),
        [
            ({"targets": ["q_proj"]}, {"0.self_attn.q_proj", "1.self_attn.q_proj"}),
            ({"targets": ["self_attn.q_proj"], "layers": 1}, {"1.self_attn.q_proj"}),
            ({"targets": ["lm_head"]}, {"lm_head"}),
            ({"targets": ["q_proj"], "layers": 1, "embeddings": True}, {"1.self_attn.q_proj", "model.embed_tokens"}),
        ],
        ids=["name", "path-and-last-layer", "head", "embeddings"],
    )
    def test_named(self, spec: dict[str, Any], expected: set[str]) -> None:
        """A name is the end of a path; `layers` counts from the last block, and modules outside blocks are always in reach."""
        assert set(lora.find(_model("qwen3"), settings.complete(spec))) == expected

    def test_routers_if_asked(self) -> None:
        """The router and the shared expert's gate, which stand beside the experts."""
        found = lora.find(_model("qwen3_next"), settings.Settings(targets=("o_proj",), routers=True))
        routers = [f"{n}.mlp.{name}" for n in (0, 1) for name in ("gate", "shared_expert_gate")]
        assert set(found) == {"1.self_attn.o_proj", *routers}

    def test_a_name_that_fits_nothing_is_an_error(self) -> None:
        """The message has the name and those that exist; "proj" is not the end of a path."""
        with pytest.raises(ValueError, match=r"targets \['proj'\] fit no module, this model has .*'self_attn.k_proj'"):
            lora.attach(_model("qwen3"), {"targets": ["q_proj", "proj"]})


class TestRefusals:
    """Specs that cannot be honoured."""

    @pytest.mark.parametrize(
        ("spec", "error", "message"),
        [
            ({"alpha": 1}, ValueError, "alpha"),
            ({"rank": 0}, ValueError, "rank is 0"),
            ({"kind": "lokr"}, ValueError, "kind is 'lokr'"),
            ({"layers": -1}, ValueError, "layers is -1"),
            ({"targets": "q_proj"}, TypeError, "targets is 'q_proj'"),
        ],
        ids=["unknown", "rank", "kind", "layers", "one-string"],
    )
    def test_impossible_values(self, spec: dict[str, Any], error: type[Exception], message: str) -> None:
        """The message names the key and the value."""
        with pytest.raises(error, match=message):
            settings.complete(spec)

    def test_dora_on_experts(self) -> None:
        """There is none in mlx-lm: the message names the module, and the model is as it was."""
        model = _model("qwen3_moe")
        with pytest.raises(NotImplementedError, match=r"no dora for 0.mlp.switch_mlp.\w+, a SwitchLinear"):
            lora.attach(model, {"kind": "dora"})
        assert lora.adapters(model) == {}

    def test_twice(self) -> None:
        model = _model("qwen3")
        lora.attach(model, {})
        with pytest.raises(ValueError, match="has adapters already"):
            lora.attach(model, {})


@pytest.mark.parametrize(("family", "bits", "spec"), CASES)
def test_off_is_the_base_and_only_adapters_train(family: str, bits: int, spec: dict[str, Any]) -> None:
    """Adapters that move the logits are bit for bit gone when off, and nothing but their own parameters would train or moves."""
    model = _model(family, bits)
    base, before = model(IDS), models.digest(models.base_parameters(model))
    lora.attach(model, START | spec)
    on = model(IDS)
    assert float(mx.abs(on - base).max()) > 0.1
    with lora.adapters_off(model):
        assert np.array_equal(np.array(model(IDS)), np.array(base))
        assert lora.adapters(model) == {}
    assert np.array_equal(np.array(model(IDS)), np.array(on))

    lora.freeze(model)
    lora.require_only_adapters(model)
    trainable = dict(tree_flatten(model.trainable_parameters()))
    assert {name.rsplit(".", 1)[1] for name in trainable} <= {"lora_a", "lora_b", "m"}
    assert len(trainable) == len(lora.adapters(model)) * (3 if spec.get("kind") == "dora" else 2)
    assert models.digest(models.base_parameters(model)) == before

    lora.detach(model)
    assert np.array_equal(np.array(model(IDS)), np.array(base))
    assert dict(tree_flatten(model.parameters())).keys() == models.base_parameters(model).keys()


@pytest.mark.parametrize(("family", "bits", "spec"), [case for case in CASES if case.values[1] == 32])
def test_an_adapter_is_the_sum_of_its_matrices(family: str, bits: int, spec: dict[str, Any]) -> None:
    """The logits are those of a base whose weights had scale A B added in NumPy, DoRA's rows brought to the length of the base's."""
    model = _model(family, bits)
    lora.attach(model, START | spec)
    on = np.array(model(IDS))
    adapters = lora.adapters(model)
    values = {
        name: {leaf: np.array(adapter[leaf], np.float64) for leaf in layers.leaves(adapter)}
        for name, adapter in adapters.items()
    }
    scale = {name: adapter.scale for name, adapter in adapters.items()}
    lora.detach(model)
    modules = lora.walk(model)
    for name, leaf in values.items():
        weight = np.array(modules[name].weight, np.float64)
        a, b = leaf["lora_a"], leaf["lora_b"]
        rows_first = isinstance(
            modules[name], nn.Embedding
        )  # A B is (vocabulary, width) there, (inputs, outputs) in a layer
        added = b @ a if a.ndim == 3 else (a @ b if rows_first else (a @ b).T)
        whole = weight + scale[name] * added
        if "m" in leaf:
            length = np.linalg.norm(weight, axis=1)
            assert leaf["m"] == pytest.approx(length, rel=1e-6)
            whole *= (length / np.linalg.norm(whole, axis=1))[:, None]
        modules[name].weight = mx.array(whole.astype(np.float32))
    assert (
        np.abs(np.array(model(IDS)) - on).max() < 2e-3
    )  # logits reach 20, routed ones pass through a softmax of a gain of 4


def test_magnitudes_may_start_elsewhere() -> None:
    """`m_std` is the relative deviation of DoRA's magnitudes from the lengths of the base's rows; uniform, so at most sqrt(3) of it."""
    model = _model("llama")
    weight = np.array(model.layers[0].mlp.up_proj.weight, np.float64)
    lora.attach(model, {"kind": "dora", "m_std": 0.1})
    relative = np.array(lora.adapters(model)["0.mlp.up_proj"].m) / np.linalg.norm(weight, axis=1) - 1
    assert np.abs(relative).max() <= 0.1 * np.sqrt(3) + 1e-6
    assert relative.std() == pytest.approx(0.1, rel=0.4)  # of 32 values


def test_every_type_at_once_goes_off() -> None:
    """LoRA, DoRA, an expert's and an embedding's adapter on one model: without all of them the logits are the base's."""
    model = _model("qwen3_next")
    base = np.array(model(IDS))
    words = np.random.Philox(key=1).random_raw
    wanted = {
        "0.linear_attn.out_proj": "lora",
        "1.self_attn.o_proj": "dora",
        "0.mlp.switch_mlp.up_proj": "lora",
        "model.embed_tokens": "dora",
    }
    modules = lora.walk(model)
    new = {n: layers.wrap(n, modules[n], settings.Settings(kind=kind, b_std=0.1), words) for n, kind in wanted.items()}
    lora.replace(model, new)
    assert len({type(adapter) for adapter in lora.adapters(model).values()}) == 4
    assert np.abs(np.array(model(IDS)) - base).max() > 0.1
    with lora.adapters_off(model):
        assert np.array_equal(np.array(model(IDS)), base)


def test_qwen3s_first_adapter_values_are_pinned() -> None:
    """A of the first module is the first Philox words over sqrt(inputs), in the order that it had before there were kinds."""
    model = _model("qwen3")
    lora.attach(model, {"seed": 5, "rank": 2})
    words = np.random.Philox(key=5).random_raw(4)
    expected = np.array([(int(word) >> 40) / 2**23 - 1 for word in words]) / np.sqrt(32)
    first = lora.adapters(model)["0.mlp.down_proj"]
    assert np.array(first.lora_a)[:2].flatten() == pytest.approx(expected, rel=1e-6)
    assert not np.array(first.lora_b).any()


@pytest.mark.parametrize("bits", [32, 4])
def test_adapters_of_a_half_precision_base_are_float32(bits: int) -> None:
    """A bfloat16 base keeps its type, its adapters have float32's: small steps of an optimizer are not rounded away."""
    model = _model("qwen3", bits)
    model.set_dtype(mx.bfloat16)
    lora.attach(model, START)
    adapter = lora.adapters(model)["0.mlp.down_proj"]
    assert (adapter.lora_a.dtype, adapter.lora_b.dtype) == (mx.float32, mx.float32)
    assert model(IDS).dtype == mx.bfloat16


class TestOnlyAdapters:
    """The check that a step trains nothing else."""

    def test_names_the_other_leaf(self) -> None:
        model = _model("qwen3")
        lora.attach(model, {})
        lora.freeze(model)
        model.layers[1].input_layernorm.unfreeze()
        assert lora.strangers(model) == ["model.layers.1.input_layernorm.weight"]
        with pytest.raises(ValueError, match=r"would too: model.layers.1.input_layernorm.weight; freeze"):
            lora.require_only_adapters(model)

    def test_names_the_base_inside_an_adapter(self) -> None:
        model = _model("qwen3_5")
        lora.attach(model, {})
        lora.freeze(model)
        lora.adapters(model)["0.linear_attn.out_proj"].unfreeze()
        assert lora.strangers(model) == ["language_model.model.layers.0.linear_attn.out_proj.linear.weight"]

    def test_without_adapters_nothing_would_train(self) -> None:
        """A frozen model without adapters is an error too."""
        with pytest.raises(ValueError, match="nothing would train"):
            lora.require_only_adapters(_model("qwen3"))


class TestDropout:
    """Inputs of adapters are dropped inside `dropout.drawn`, by masks that its numbers decide."""

    SPEC: ClassVar = {**START, "dropout": 0.5}

    @pytest.mark.parametrize("spec", [{}, {"kind": "dora", "targets": ["o_proj"]}, {"embeddings": True}], ids=str)
    @pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "qwen3_next"])
    def test_only_inside_the_context(self, family: str, spec: dict[str, Any]) -> None:
        """Outside it the model has the bits of one without dropout; inside, those of the numbers."""
        model = _model(family)
        lora.attach(model, START | spec)
        plain = np.array(model(IDS))
        lora.detach(model)
        lora.attach(model, self.SPEC | spec)
        with dropout.drawn(model, 3, 1):
            inside = np.array(model(IDS))
            assert np.array_equal(inside, np.array(model(IDS)))
        with dropout.drawn(model, 3, 2):
            assert not np.array_equal(inside, np.array(model(IDS)))
        assert not np.array_equal(inside, plain)
        assert np.array_equal(np.array(model(IDS)), plain)

    @pytest.mark.parametrize("family", ["qwen3", "qwen3_moe", "qwen3_next"])
    def test_checkpointed_layers_drop_the_same_elements(self, family: str) -> None:
        """Loss and gradient of layers that are computed twice are those of layers that are kept."""
        model = _model(family)
        lora.attach(model, self.SPEC)
        lora.freeze(model)

        def gradient() -> tuple[float, dict[str, np.ndarray]]:
            with dropout.drawn(model, 3), heads.differentiable(model):
                value, found = nn.value_and_grad(model, lambda: model(IDS).astype(mx.float32).var())()
            return float(value), {name: np.array(x) for name, x in tree_flatten(found)}

        kept, one = gradient()
        with checkpointing.per_layer(model):
            again, other = gradient()
        assert again == pytest.approx(kept, rel=1e-6)
        for name, x in one.items():
            assert np.abs(other[name] - x).max() <= 1e-4 * max(float(np.abs(x).max()), 1e-6), name

    def test_embeddings_have_none(self) -> None:
        """As in PEFT; their adapter has mlx-lm's own dropout of 0."""
        model = _model("gemma3_text")
        lora.attach(model, {**self.SPEC, "embeddings": True})
        found = lora.adapters(model)
        with_dropout = {name for name, adapter in found.items() if isinstance(adapter.dropout, dropout.Dropout)}
        assert set(found) - with_dropout == {"model.embed_tokens"}

    def test_p_of_one_is_refused(self) -> None:
        """Nothing would be left to divide."""
        with pytest.raises(ValueError, match=r"dropout is 1\.0, must be in \[0, 1\)"):
            settings.complete({"dropout": 1.0})
