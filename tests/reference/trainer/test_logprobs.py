"""Scores of completion tokens: the head at scored positions only, against all logits, the float64 oracle and autodiff."""

import importlib
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten

from gates_reference import tiny_families
from gates_reference.oracle import logprobs as oracle
from gates_reference.trainer import heads, logprobs, lora
from gates_reference.trainer import model as models
from gates_reference.trainer.adapters import dropout

pytestmark = pytest.mark.usefixtures("untouched")

FAMILIES = sorted(tiny_families.FAMILIES)
TEMPERATURE = 0.7
LENGTHS = np.array([5, 0, 9])


def _batch() -> logprobs.Batch:
    rng = np.random.default_rng(4)
    prompts = [rng.integers(3, 320, n).astype(np.int32) for n in (7, 12, 3)]
    return logprobs.pack(prompts, rng.integers(3, 320, (3, 9)).astype(np.int32), LENGTHS)


def _model(family: str, bits: int = 32, **spec: Any) -> Any:
    model = models.load({"family": family, "bits": bits}).model
    lora.attach(model, {"seed": 3, "b_std": 0.1, **spec})
    lora.freeze(model)
    return model


def _expected(model: Any, batch: logprobs.Batch) -> tuple[np.ndarray, np.ndarray]:
    """Log-probs and entropies (B, T) in float64 from all logits of the model's own call, token by token."""
    logits, ids = np.array(model(batch.ids), np.float64), np.array(batch.ids)
    values, entropies = np.zeros((3, 9)), np.zeros((3, 9))
    for row, (prompt, length) in enumerate(zip(batch.prompt_lengths, batch.lengths, strict=True)):
        for step in range(length):
            scoring = logits[row, prompt + step - 1]
            values[row, step] = oracle.log_softmax(scoring, temperature=TEMPERATURE)[ids[row, prompt + step]]
            entropies[row, step] = oracle.entropy(scoring, temperature=TEMPERATURE)
    return values, entropies


@pytest.mark.parametrize("head_rows", [None, 4], ids=["whole", "pieces"])
@pytest.mark.parametrize("bits", [32, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_are_those_of_all_logits(family: str, bits: int, head_rows: int | None) -> None:
    """Log-probs and entropies at scored slots are the oracle's from all logits, and 0 elsewhere."""
    model, batch = _model(family, bits), _batch()
    values, entropies = _expected(model, batch)
    scores = logprobs.scored(model, batch, TEMPERATURE, entropy=True, head_rows=head_rows)
    mask = np.arange(9) < LENGTHS[:, None]
    assert np.array_equal(np.array(scores.mask), mask)
    assert scores.entropy is not None
    for got, want in ((scores.values, values), (scores.entropy, entropies)):
        assert np.abs(np.array(got) - want).max() < 1e-4  # another order of summation in the head
        assert (np.array(got)[~mask] == 0).all()
    assert values[mask].min() < -3
    assert entropies[mask].mean() > 0.5


def _weighted(scores: logprobs.Scores) -> mx.array:
    weights = mx.array(np.random.default_rng(5).normal(size=(2, 3, 9)).astype(np.float32))
    assert scores.entropy is not None
    return (weights[0] * scores.values + weights[1] * scores.entropy).sum()


def _from_all_logits(model: Any, batch: logprobs.Batch) -> logprobs.Scores:
    """The slow path: (B, L, V) logits, and MLX's own log-softmax on them."""
    slots = logprobs.completion_slots(batch.prompt_lengths, batch.lengths, batch.width)
    logits = logprobs.completion_logits(model(batch.ids), slots)
    log_p = nn.log_softmax(logits / TEMPERATURE, axis=-1)
    ids = mx.where(slots.mask, mx.take_along_axis(batch.ids, slots.target, axis=1), 0)
    values = mx.take_along_axis(log_p, ids[..., None], axis=-1)[..., 0]
    entropies = -(mx.exp(log_p) * log_p).sum(axis=-1)
    return logprobs.Scores(
        *(mx.where(m, x, 0.0) for m, x in ((slots.mask, values), (True, slots.mask))), entropies * slots.mask
    )


@pytest.mark.parametrize("head_rows", [None, 4], ids=["whole", "pieces"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_all_logits(family: str, head_rows: int | None) -> None:
    """Every adapter's gradient, the embedding's and an untied head's too, is that of the slow path through all logits."""
    model, batch = _model(family, embeddings=True), _batch()
    _, slow = nn.value_and_grad(model, lambda: _weighted(_from_all_logits(model, batch)))()
    _, fast = nn.value_and_grad(
        model, lambda: _weighted(logprobs.scored(model, batch, TEMPERATURE, entropy=True, head_rows=head_rows))
    )()
    slow, fast = dict(tree_flatten(slow)), dict(tree_flatten(fast))
    assert slow.keys() == fast.keys()
    for name, want in slow.items():
        size = float(mx.abs(want).max())
        assert size > 0, name
        assert float(mx.abs(fast[name] - want).max()) < 2e-4 * size + 1e-5, name


@pytest.mark.parametrize("probability", [0.0, 0.5], ids=["no-dropout", "dropout"])
def test_an_adapter_of_the_head_trains_in_pieces(probability: float) -> None:
    """The gradient of an untied head's adapter is the same in pieces as in one; pieces drop what the whole would."""
    batch, model = _batch(), _model("qwen3", targets=["lm_head"], dropout=probability)
    gradients = []
    for rows in (None, 4):
        with dropout.drawn(model, 7):
            _, gradient = nn.value_and_grad(
                model, lambda rows=rows: _weighted(logprobs.scored(model, batch, 1.0, entropy=True, head_rows=rows))
            )()
            mx.eval(gradient)
        gradients.append(dict(tree_flatten(gradient)))
    for name, want in gradients[0].items():
        assert float(mx.abs(want).max()) > 0
        assert np.array(gradients[1][name]) == pytest.approx(np.array(want), abs=1e-4)


def test_pieces_take_less_memory() -> None:
    """With many positions and a wide vocabulary the peak of the gradient falls by more than half."""
    model = models.load({"vocab": 590}).model
    lora.attach(model, {"targets": ["lm_head"], "b_std": 0.1})
    lora.freeze(model)
    rng = np.random.default_rng(0)
    batch = logprobs.pack(
        [np.array([5], np.int32)] * 4, rng.integers(3, 590, (4, 512)).astype(np.int32), np.full(4, 512)
    )

    def peak(rows: int | None) -> int:
        mx.eval(model.parameters())
        mx.reset_peak_memory()
        start = mx.get_active_memory()

        def loss() -> mx.array:
            return logprobs.scored(model, batch, 1.0, entropy=True, head_rows=rows).values.sum()

        mx.eval(nn.value_and_grad(model, loss)())
        return mx.get_peak_memory() - start

    assert peak(128) < 0.5 * peak(None)


HEADS = {  # models whose head does more than a product; the numbers are made up
    "gemma2-soft-cap": ("gemma2", {"head_dim": 8, "rms_norm_eps": 1e-6, "final_logit_softcapping": 2.0}),
    "cohere-scale": ("cohere", {"logit_scale": 0.25}),
    "granite-divisor": (
        "granite",
        {
            "rms_norm_eps": 1e-6,
            "logits_scaling": 3.0,
            "attention_multiplier": 0.5,
            "embedding_multiplier": 2.0,
            "residual_multiplier": 0.7,
            "max_position_embeddings": 64,
            "attention_bias": False,
            "mlp_bias": False,
            "rope_theta": 1e4,
        },
    ),
}


@pytest.mark.parametrize(("kind", "arguments"), HEADS.values(), ids=HEADS)
def test_the_head_is_the_models_own(kind: str, arguments: dict[str, Any]) -> None:
    """Body and head in two calls give the logits of one, where these are capped or scaled after the product."""
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 4}
    model = module.Model(module.ModelArgs(model_type=kind, **sizes, num_key_value_heads=2, vocab_size=64, **arguments))
    mx.eval(model.parameters())
    ids = mx.array([[3, 5, 7, 9]])
    states = heads.hidden(model, ids)
    assert states.shape == (1, 4, 32)
    assert np.array(heads.logits(model, states)) == pytest.approx(np.array(model(ids)), abs=1e-6)
    product = model.model.embed_tokens.as_linear(states)
    assert float(mx.abs(product - model(ids)).max()) > 1e-3
    assert type(model.model).__module__ == module.__name__  # the stand is gone


def test_a_model_without_a_body_is_an_error() -> None:
    """Blocks that stand in the model itself cannot be called without the head; the message names the class."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [nn.Linear(2, 2)]

    with pytest.raises(TypeError, match=r"Flat has no body"):
        heads.hidden(Flat(), mx.zeros((1, 1), mx.int32))


def test_training_mode_lasts_for_the_forward_pass_only() -> None:
    """Linear attention is in training mode while it is scored, and dropout is not; afterwards all is as before."""
    model = _model("qwen3_next")
    model.eval()
    with heads.differentiable(model):
        modes = {type(module).__name__: module.training for module in model.modules()}
    assert modes["Qwen3NextGatedDeltaNet"]
    assert not modes["Dropout"]
    assert not any(module.training for module in model.modules())


def test_no_token_at_all() -> None:
    """A batch of empty completions scores nothing."""
    batch = logprobs.pack([np.array([4], np.int32)], np.zeros((1, 3), np.int32), np.array([0]))
    scores = logprobs.scored(_model("qwen3"), batch, 1.0, entropy=True)
    assert not np.array(scores.mask).any()
    assert not np.array(scores.values).any()
    assert scores.entropy is not None
    assert scores.values.shape == scores.entropy.shape == (1, 3)


class TestEntropy:
    """Entropies of single rows."""

    @pytest.mark.parametrize(
        ("logits", "expected"),
        [
            ([0.0, 0.0, 0.0, 0.0], np.log(4)),
            ([1e4, 0.0, -1e4], 0.0),
            ([0.0, -np.inf, 0.0], np.log(2)),
            ([np.log(3.0), 0.0], 2 * np.log(2) - 0.75 * np.log(3)),  # p = 3/4, 1/4
        ],
        ids=["uniform", "certain", "excluded", "three-to-one"],
    )
    def test_by_hand(self, logits: list[float], expected: float) -> None:
        """Known distributions, with an excluded token and with logits of 10,000."""
        assert float(logprobs.token_entropy(mx.array(logits), 1.0)) == pytest.approx(expected, abs=1e-6)

    def test_gradient(self) -> None:
        """dH/dx_v = -p_v (log p_v + H) / tau, the excluded token's is 0."""
        logits = np.array([0.3, -1.2, 2.0, -np.inf])
        gradient = mx.grad(lambda x: logprobs.token_entropy(x, TEMPERATURE))(mx.array(logits.astype(np.float32)))
        log_p = oracle.log_softmax(logits[:3], temperature=TEMPERATURE)
        expected = -np.exp(log_p) * (log_p - (np.exp(log_p) * log_p).sum()) / TEMPERATURE
        assert np.array(gradient) == pytest.approx([*expected, 0.0], abs=1e-6)
