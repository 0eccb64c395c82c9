"""Forward passes in float64: beside mlx-lm's in float32 on tiny models, with and without adapters, and what must hold of any.

Measured with seeds 0 to 3, without and with LoRA: the logits differ from mlx-lm's by at most 5.5e-5 of their spread (Qwen3-Next;
4.3e-5 Qwen3.5, 1.8e-5 Llama, 8e-6 and less the others but Gemma 2), the log-probs by 1.3e-4, 1.0e-4 and 4e-5 nats and less.
mlx-lm computes in float32, whose unit is 6e-8, and the
gain of these models makes errors grow in every block. For comparison: an unrounded factor of Gemma 3's embeddings changes log-probs
by 1e-3 nats, a base of the rotation that is off by 0.1% by 9e-3, a window of one more position by 7. An epsilon that is ten times
as large can stay below the limit (2e-4); transformers in float64 agrees on all of these models to 1e-13 (by hand, version 5.23).
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm import utils
from safetensors.numpy import load_file, save_file

from gates.errors import ConfigurationError
from gates.replay import forward
from gates.replay.forward import products
from gates_reference import tiny
from gates_reference.trainer import lora
from gates_reference.trainer.adapters import files

IDS = np.random.default_rng(0).integers(3, 320, (3, 20))
SPREAD_LIMIT = 1e-4
NATS_LIMIT = 2e-4
DENSE = ["qwen3", "llama", "cohere", "gemma2", "qwen2", "gemma3_text", "lfm2", "qwen3_5"]
EXPERTS = ["qwen3_moe", "mixtral", "olmoe", "qwen3_next"]
QUANTISED = [{"family": family, "bits": 4} for family in ("qwen3", "llama", "qwen3_moe", "qwen3_next", "gemma3_text")]
PLAIN = [{"family": family} for family in (*DENSE, *EXPERTS)]
LORA = {"kind": "lora", "b_std": 0.02, "embeddings": True, "routers": True, "scale": 1.5}
DORA = {"kind": "dora", "b_std": 0.02, "m_std": 0.1, "scale": 1.5}


def _id(spec: dict[str, Any]) -> str:
    return "-".join(str(value) for value in spec.values())


def _log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _agree(model: Any, peer: Any) -> None:
    got, want = model.logits(IDS), np.array(peer(mx.array(IDS)).astype(mx.float32), np.float64)
    assert got.dtype == np.float64
    assert np.abs(got - want).max() <= SPREAD_LIMIT * got.std()
    assert np.abs(_log_softmax(got) - _log_softmax(want)).max() <= NATS_LIMIT


def _adapters(peer: Any, spec: dict[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """Put adapters on mlx-lm's model, and return them as the trainer writes them."""
    lora.attach(peer, spec)
    files.save(peer, folder)
    return forward.read(folder / files.WEIGHTS)


class TestFamilies:
    """The logits of each family."""

    @pytest.mark.parametrize("spec", [*PLAIN, *QUANTISED], ids=_id)
    def test_logits_are_those_of_mlx_lm(self, spec: dict[str, Any]) -> None:
        """They agree within what float32 loses."""
        folder = tiny.build(spec)
        _agree(forward.load(folder), utils.load_model(folder)[0])

    @pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
    def test_weights_of_half_precision_are_widened(self, dtype: str) -> None:
        """They agree with mlx-lm's model whose weights were cast to float32."""
        folder = tiny.build({"dtype": dtype})
        peer, _ = utils.load_model(folder)
        peer.set_dtype(mx.float32)
        _agree(forward.load(folder), peer)

    def test_a_tied_head_is_the_table_of_embeddings(self, tmp_path: Path) -> None:
        """A llama without a head uses its table, and agrees with mlx-lm."""
        folder = _changed(tmp_path, {"family": "llama"}, tie_word_embeddings=True)
        _agree(forward.load(folder), utils.load_model(folder)[0])

    @pytest.mark.parametrize("scaling", [
        {"rope_type": "linear", "factor": 2.0},
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ], ids=["linear", "llama3"])  # fmt: skip
    def test_scaled_frequencies_are_those_of_mlx_lm(self, tmp_path: Path, scaling: dict[str, Any]) -> None:
        """Both published ways of stretching the context."""
        folder = _changed(tmp_path, {"family": "llama"}, rope_scaling=scaling)
        _agree(forward.load(folder), utils.load_model(folder)[0])

    def test_gemma_2_has_windows(self, tmp_path: Path) -> None:
        """The first block does not see past its window; mlx-lm 0.32 has none (measured against transformers in float64: 3e-14)."""
        whole = forward.load(tiny.build({"family": "gemma2"}))
        narrow = forward.load(_changed(tmp_path, {"family": "gemma2"}, sliding_window=8))
        differ = np.abs(whole.logits(IDS) - narrow.logits(IDS)).max(axis=(0, 2))
        assert np.all(differ[:8] == 0)
        assert np.all(differ[8:] > 1e-3)

    def test_mistral_is_llama_with_a_window_in_every_block(self, tmp_path: Path) -> None:
        """Without a window they are equal; with one, the last position does not depend on the first, two windows behind."""
        fields = {"model_type": "mistral", "sliding_window": None}
        llama = forward.load(tiny.build({"family": "llama"}))
        assert np.array_equal(
            forward.load(_changed(tmp_path, {"family": "llama"}, **fields)).logits(IDS), llama.logits(IDS)
        )
        narrow = forward.load(_changed(tmp_path, {"family": "llama"}, **{**fields, "sliding_window": 8}))
        changed = IDS.copy()
        changed[:, 0] += 1
        differ = np.abs(narrow.logits(changed) - narrow.logits(IDS)).max(axis=(0, 2))
        assert np.all(differ[:15] > 0)
        assert np.all(differ[15:] <= 1e-12)


class TestPublishedFiles:
    """Files with the names and shapes of Hugging Face, which mlx-lm changes when it loads them."""

    @pytest.mark.parametrize(("family", "leaves"), [
        ("qwen3_moe", {}),
        ("mixtral", {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}),
    ], ids=["qwen3_moe", "mixtral"])  # fmt: skip
    def test_experts_of_their_own_are_stacked(self, family: str, leaves: dict[str, str], tmp_path: Path) -> None:
        """A matrix for each expert gives the logits of the stack."""
        folder = _changed(tmp_path, {"family": family})
        path = folder / "model.safetensors"
        single: dict[str, np.ndarray] = {}
        for name, x in load_file(path).items():
            block, found, leaf = name.partition(".switch_mlp.")
            leaf = leaf.removesuffix(".weight")
            names = [f"{block}.experts.{n}.{leaves.get(leaf, leaf)}.weight" for n in range(len(x))] if found else [name]
            single |= dict(zip(names, x if found else [x], strict=True))
        save_file({name: np.ascontiguousarray(x) for name, x in single.items()}, path)
        want = forward.load(tiny.build({"family": family})).logits(IDS)
        assert np.array_equal(forward.load(folder).logits(IDS), want)

    def test_norms_of_hybrids_are_published_less_1(self, tmp_path: Path) -> None:
        """Convolutions of shape (channels, 1, width) show that the file is a published one, whose norms are less 1."""
        folder = _changed(tmp_path, {"family": "qwen3_next"})
        path = folder / "model.safetensors"
        centred = ("layernorm.weight", "model.norm.weight", "q_norm.weight", "k_norm.weight")
        published = {
            name: x - 1 if name.endswith(centred) else np.swapaxes(x, 1, 2) if "conv1d" in name else x
            for name, x in load_file(path).items()
        }
        save_file({name: np.ascontiguousarray(x) for name, x in published.items()}, path)
        want = forward.load(tiny.build({"family": "qwen3_next"})).logits(IDS)
        assert np.array_equal(forward.load(folder).logits(IDS), want)


class TestAdapters:
    """Low-rank adapters on a shared base."""

    @pytest.mark.parametrize("spec", [*PLAIN, *QUANTISED], ids=_id)
    def test_lora_is_that_of_mlx_lm(self, spec: dict[str, Any], tmp_path: Path) -> None:
        """On projections, experts, routers and embeddings."""
        folder = tiny.build(spec)
        peer, _ = utils.load_model(folder)
        arrays = _adapters(peer, LORA, tmp_path)
        _agree(forward.load(folder).adapted(arrays, kind="lora", scale=1.5), peer)

    @pytest.mark.parametrize("spec", [*({"family": name} for name in DENSE), {"family": "qwen3", "bits": 4}], ids=_id)
    def test_dora_is_that_of_mlx_lm(self, spec: dict[str, Any], tmp_path: Path) -> None:
        """On projections, and on embeddings that are not quantised."""
        folder = tiny.build(spec)
        peer, _ = utils.load_model(folder)
        arrays = _adapters(peer, {**DORA, "embeddings": "bits" not in spec}, tmp_path)
        _agree(forward.load(folder).adapted(arrays, kind="dora", scale=1.5), peer)

    @pytest.mark.parametrize(("kind", "norms"), [("lora", False), ("dora", True)])
    def test_a_difference_quotient_is_the_gradient_of_mlx_lm(self, kind: str, norms: bool, tmp_path: Path) -> None:
        """DoRA's gradient holds the denominators constant, so its quotient takes them from the middle."""
        folder = tiny.build({})
        peer, _ = utils.load_model(folder)
        arrays = _adapters(peer, {"kind": kind, "b_std": 0.02, "seed": 3}, tmp_path)
        lora.freeze(peer)
        direction = {name: np.random.default_rng(1).normal(size=x.shape) for name, x in arrays.items()}
        model = forward.load(folder)

        def loss(step: float) -> float:
            moved = {name: x + step * direction[name] for name, x in arrays.items()}
            adapted = model.adapted(moved, kind=kind, scale=2.0, norms=arrays if norms else None)
            return float(_log_softmax(adapted.logits(IDS))[..., 5].sum())

        quotient = (loss(1e-5) - loss(-1e-5)) / 2e-5
        want = _slope(peer, direction)
        assert abs(quotient - want) <= 1e-4 * abs(want)

    def test_the_base_is_shared_and_unchanged(self, tmp_path: Path) -> None:
        """A model with adapters leaves its base as it was, and holds the same arrays."""
        folder = tiny.build({})
        model = forward.load(folder)
        before = model.logits(IDS)
        arrays = _adapters(utils.load_model(folder)[0], {"b_std": 0.02}, tmp_path)
        adapted = model.adapted(arrays, kind="lora", scale=2.0)
        assert adapted.modules.weights is model.modules.weights
        assert np.abs(adapted.logits(IDS) - before).max() > 1e-2
        assert np.array_equal(model.logits(IDS), before)

    @pytest.mark.parametrize(("name", "shapes", "message"), [
        ("model.layers.9.mlp.up_proj", ((32, 2), (2, 32)), r"model.layers.9.mlp.up_proj has an adapter, but the model has no"),
        ("model.layers.0.self_attn.k_proj", ((32, 2), (2, 32)), r"k_proj has adapters of shapes .* its weight is \(16, 32\)"),
    ], ids=["name", "shape"])  # fmt: skip
    def test_adapters_that_do_not_fit_are_an_error(self, name: str, shapes: Any, message: str) -> None:
        """The message names the module."""
        arrays = {f"{name}.lora_{leaf}": np.ones(shape) for leaf, shape in zip("ab", shapes, strict=True)}
        with pytest.raises(ConfigurationError, match=message):
            forward.load(tiny.build({})).adapted(arrays, kind="lora", scale=1.0)

    def test_a_missing_magnitude_is_an_error(self) -> None:
        """DoRA without m is no DoRA."""
        arrays = {f"model.layers.0.mlp.up_proj.lora_{leaf}": np.ones((32, 32)) for leaf in "ab"}
        with pytest.raises(ConfigurationError, match="a dora adapter has"):
            forward.load(tiny.build({})).adapted(arrays, kind="dora", scale=1.0)


class TestLaws:
    """What holds whatever the formula is."""

    @pytest.mark.parametrize("spec", PLAIN, ids=_id)
    def test_a_later_token_changes_nothing_before(self, spec: dict[str, Any]) -> None:
        """Logits before position 11 stay, those from there on change."""
        model = forward.load(tiny.build(spec))
        changed = IDS.copy()
        changed[:, 11] = (changed[:, 11] + 7) % 320
        before, after = model.logits(IDS), model.logits(changed)
        assert np.abs(after[:, :11] - before[:, :11]).max() <= 1e-12
        assert np.all(np.abs(after[:, 11:] - before[:, 11:]).max(axis=-1) > 0)

    @pytest.mark.parametrize("spec", PLAIN, ids=_id)
    def test_rows_and_padding_change_nothing(self, spec: dict[str, Any]) -> None:
        """A row by itself, without its padding, has the logits that it has in a batch."""
        model = forward.load(tiny.build(spec))
        assert np.abs(model.logits(IDS[1:2, :13]) - model.logits(IDS)[1, :13]).max() <= 1e-12


class TestProducts:
    """Products in blocks of rows."""

    @pytest.mark.parametrize("shape", [(16, 24, 32, 320), (3, 1, 64, 64), (700, 5, 24, 1), (5, 7, 300, 400)])
    def test_blocks_change_no_value(self, shape: tuple[int, int, int, int]) -> None:
        """Heads, single rows, vectors, and matrices that are too large for blocks."""
        rows, columns, inputs, outputs = shape
        rng = np.random.default_rng(0)
        x, matrix = rng.normal(size=(rows, columns, inputs)), rng.normal(size=(inputs, outputs))
        got = products.product(x, matrix)
        assert got.shape == (rows, columns, outputs)
        assert np.abs(got - np.einsum("abi,io->abo", x, matrix)).max() <= 1e-12


class TestScores:
    """Log-probs and entropies of completions."""

    def test_they_are_those_of_the_full_logits(self) -> None:
        """Ragged rows, among them an empty completion, at a temperature."""
        model = forward.load(tiny.build({}))
        prompts, completions = [IDS[0, :4], IDS[1, :7], IDS[2, :1]], [IDS[0, 4:15], [], IDS[2, 1:20]]
        values, entropies = forward.log_probs(model, prompts, completions, 0.7)
        assert [len(row) for row in values] == [len(row) for row in entropies] == [11, 0, 19]
        for row, start, end in ((0, 4, 15), (2, 1, 20)):
            logs = _log_softmax(model.logits(IDS[row : row + 1])[0, start - 1 : end - 1] / 0.7)
            wanted = logs[np.arange(end - start), IDS[row, start:end]]
            assert np.abs(values[row] - wanted).max() <= 1e-12
            assert np.abs(entropies[row] + (np.exp(logs) * logs).sum(axis=-1)).max() <= 1e-12

    def test_pieces_of_the_logits_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The head runs on as many positions as fit into memory."""
        model = forward.load(tiny.build({}))
        whole = forward.log_probs(model, [IDS[0, :2]], [IDS[0, 2:]], 1.0)
        monkeypatch.setattr("gates.replay.forward.scores.ELEMENTS", 5 * 320)
        pieces = forward.log_probs(model, [IDS[0, :2]], [IDS[0, 2:]], 1.0)
        assert np.abs(np.subtract(whole, pieces)).max() <= 1e-12

    def test_an_empty_prompt_is_an_error(self) -> None:
        """The first token has no distribution."""
        with pytest.raises(ValueError, match="a prompt is empty"):
            forward.log_probs(forward.load(tiny.build({})), [[]], [[5]], 1.0)


class TestErrors:
    """Models without a forward pass."""

    def test_an_unknown_family_names_the_known_ones(self, tmp_path: Path) -> None:
        """The message has the folder, the type and the list."""
        folder = _changed(tmp_path, {}, model_type="gpt5")
        with pytest.raises(forward.UnsupportedError, match=r"model_type is 'gpt5', known are \['cohere', .*'qwen3'"):
            forward.load(folder)

    @pytest.mark.parametrize(("field", "value"), [
        ("rope_scaling", {"rope_type": "yarn", "factor": 2.0}),
        ("hidden_act", "relu"),
        ("quantization_config", {"quant_method": "awq"}),
    ])  # fmt: skip
    def test_an_unknown_setting_is_named(self, tmp_path: Path, field: str, value: Any) -> None:
        """A setting that the forward pass does not compute is refused, not ignored."""
        with pytest.raises(forward.UnsupportedError, match=field):
            forward.load(_changed(tmp_path, {}, **{field: value}))

    def test_a_weight_that_is_not_used_is_named(self, tmp_path: Path) -> None:
        """Llama's forward pass does not read the norms of Qwen3's heads."""
        folder = _changed(tmp_path, {}, model_type="llama")
        with pytest.raises(forward.UnsupportedError, match=r"does not use 4 weights, .*self_attn.k_norm.weight"):
            forward.load(folder)

    def test_ids_outside_the_vocabulary_are_an_error(self) -> None:
        """The message has the range."""
        with pytest.raises(ValueError, match=r"in \[0, 320\), found shape \(1, 2\) in \[1, 320\]"):
            forward.load(tiny.build({})).logits([[1, 320]])


def _slope(peer: Any, direction: dict[str, np.ndarray]) -> float:
    """Return the derivative of a sum of log-probs along a direction, by mlx-lm's model and MLX's autograd."""
    ids = mx.array(IDS)

    def loss(model: Any) -> mx.array:
        return nn.log_softmax(model(ids), axis=-1)[..., 5].sum()

    _, gradient = nn.value_and_grad(peer, loss)(peer)
    flat = dict(tree_flatten(gradient))
    return float(sum(np.sum(np.array(flat[name], np.float64) * step) for name, step in direction.items()))


def _changed(folder: Path, spec: dict[str, Any], **fields: Any) -> Path:
    """Return a copy of a tiny model with other fields in its configuration."""
    source = tiny.build(spec)
    (folder / "model.safetensors").write_bytes((source / "model.safetensors").read_bytes())
    content = json.loads((source / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**content, **fields}), encoding="utf-8")
    return folder
