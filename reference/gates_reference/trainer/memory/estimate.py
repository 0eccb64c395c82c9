"""Estimate the memory of a run from the numbers in a model's config.json, without loading the model.

A step's peak is weights + adapters with their optimizer + the larger of rollout (caches, logits) and update (activations kept for the
backward pass, logits). Each term is shapes times bytes. Four numbers of copies do not follow from shapes; they were chosen once, as
multiples of one half, so that the four peaks measured on an Apple M4 Max are reproduced within 3%. A gigabyte is 1e9 bytes.

With checkpointed layers the update holds the states between the layers, everything that one layer keeps, and the working memory of
that layer's backward pass. This is the largest of three, which come one after the other: the feed-forward part's `MLP_WORKING`
arrays, attention's gradients of its scores and projections, and linear attention's states. Without checkpointing one layer's working
memory is a small part of the total, and the half copy in `ACTIVATION_COPIES` covers the first two.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

LOGIT_COPIES: Final = 4.5
"""Float32 arrays of the vocabulary's width per scored token: logits, shifted, exponential, gradient, and the head's 16-bit output."""
HEAD_PIECES: Final = 3.0
"""Pieces of the head (`loop.head_rows`) whose logits are in memory at once; MLX computes several pieces in parallel.

Measured on a tiny model with 2048 scored tokens: compared with pieces of 64 tokens, pieces of 512, 256 and 128 need 3.5, 4.0 and 2.9
times `LOGIT_COPIES` arrays of a piece.
"""
HEAD_ROWS: Final = 256
"""The recommended size of a piece: a product with as many rows still uses the whole machine."""
STATES_KEPT: Final = 2.0
"""States of linear attention that each token of such a layer keeps for the backward pass: before and after its decay."""
STATES_WORKING: Final = 4.0
"""Further states per token of the one layer whose backward pass is running."""
MLP_WORKING: Final = 12
"""Further arrays, as wide as the feed-forward part, of its backward pass. For gate and up: the matrix's output, the low-rank product
and the scaled one (6); the gradient of their product, by the matrix, by the adapter, and the sum (3); the gradients of gate, its
activation and up (3)."""
PROJECTION_WORKING: Final = 2
"""Further arrays per projection of attention in its backward pass: the low-rank product and the gradient."""
SCORE_WORKING: Final = 2
"""Float32 arrays of attention scores in the backward pass: the gradients of the probabilities and of the scores."""
ACTIVATION_COPIES: Final = 1.5
"""Copies of each activation of the forward pass: itself, and half a copy for adapters and casts."""
SCORE_COPIES: Final = 1.0
"""Float32 attention scores per query, key and head, kept for the backward pass."""
GROUP_BITS: Final = 32
"""A 16-bit scale and a 16-bit bias for each group of a quantised matrix."""
ADAPTER_COPIES: Final = 4
"""Copies of every adapter value: itself, its gradient and Adam's two moments."""
GIGA: Final = 1e9
LONGEST_MEASURED: Final = 128
"""The longest sequence at which a hybrid model was measured without checkpointing."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of a model that its memory depends on; `linear_layers` of `layers` are linear attention, `bits` are per weight."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    tied: bool
    bits: float
    activation_bytes: int
    linear_layers: int = 0
    linear_key_heads: int = 0
    linear_value_heads: int = 0
    linear_key_dim: int = 0
    linear_value_dim: int = 0
    experts: int = 0
    active_experts: int = 0
    expert_intermediate: int = 0

    @property
    def state_bytes(self) -> int:
        """Bytes of the float32 state of one linear-attention layer and row."""
        return 4 * self.linear_value_heads * self.linear_key_dim * self.linear_value_dim


@dataclass(frozen=True, slots=True)
class Plan:
    """A step: `rows` per forward and backward pass, `rollout_rows` sampled together, and lengths in tokens.

    The head runs on `head_rows` scored tokens at a time; 0 means all tokens of a pass.
    """

    rows: int
    rollout_rows: int
    prompt: int
    completion: int
    checkpoint: bool
    rank: int = 16
    head_rows: int = 0

    @property
    def logit_rows(self) -> float:
        """Scored tokens whose logits are in memory at once in an update."""
        every = self.rows * self.completion
        return min(every, HEAD_PIECES * self.head_rows) if 0 < self.head_rows < every else every


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bytes of each part, and how reliable the estimate is."""

    weights: float
    adapters: float
    rollout: float
    activations: float
    logits: float
    trust: str

    @property
    def peak(self) -> float:
        """Bytes in memory at once, at most."""
        return self.weights + self.adapters + max(self.rollout, self.activations + self.logits)


def shape(config: Mapping[str, Any]) -> Shape:
    """Read the numbers of a config.json in the Hugging Face layout.

    Raises:
        ValueError: a required number is missing.
    """
    text = {**config, **config.get("text_config", {})}
    missing = [k for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size") if k not in text]
    if missing:
        raise ValueError(f"config.json has no {', '.join(missing)}; the memory cannot be estimated")
    quantisation = config.get("quantization") or {}
    bits = quantisation["bits"] + GROUP_BITS / quantisation["group_size"] if quantisation else None
    wide = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16") == "float32"
    layers, every = text["num_hidden_layers"], text.get("full_attention_interval", 4)
    linear = layers - layers // every if "linear_num_value_heads" in text else 0
    return Shape(
        hidden=text["hidden_size"],
        layers=layers,
        heads=text["num_attention_heads"],
        kv_heads=text.get("num_key_value_heads", text["num_attention_heads"]),
        head_dim=text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"],
        intermediate=text.get("intermediate_size", 0),
        vocab=text["vocab_size"],
        tied=bool(text.get("tie_word_embeddings", False)),
        bits=bits if bits is not None else (32 if wide else 16),
        activation_bytes=4 if wide else 2,
        linear_layers=linear,
        linear_key_heads=text.get("linear_num_key_heads", 0),
        linear_value_heads=text.get("linear_num_value_heads", 0),
        linear_key_dim=text.get("linear_key_head_dim", 0),
        linear_value_dim=text.get("linear_value_head_dim", 0),
        experts=text.get("num_experts", 0),
        active_experts=text.get("num_experts_per_tok", 0),
        expert_intermediate=text.get("moe_intermediate_size", 0),
    )


def _linear_widths(m: Shape) -> tuple[int, int]:
    return m.linear_key_heads * m.linear_key_dim, m.linear_value_heads * m.linear_value_dim


def parameters(m: Shape) -> int:
    """Count the weights of all matrices; a hybrid model's full attention has a gate as wide as its queries."""
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    attention = m.hidden * (queries * (3 if m.linear_layers else 2) + 2 * keys)
    key_width, value_width = _linear_widths(m)
    linear = m.hidden * (2 * key_width + 3 * value_width + 2 * m.linear_value_heads)
    mlp = 3 * m.hidden * (m.experts * m.expert_intermediate or m.intermediate) + m.hidden * m.experts
    head = m.vocab * m.hidden * (1 if m.tied else 2)
    return m.layers * mlp + (m.layers - m.linear_layers) * attention + m.linear_layers * linear + head


def _adapter_parameters(m: Shape, rank: int) -> int:
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    attention = 2 * (m.hidden + queries) + 2 * (m.hidden + keys)
    key_width, value_width = _linear_widths(m)
    linear = (m.hidden + 2 * key_width + value_width) + 2 * (m.hidden + value_width)
    mlp = 3 * (m.hidden + (m.expert_intermediate or m.intermediate)) * max(m.experts, 1)
    return rank * (m.layers * mlp + (m.layers - m.linear_layers) * attention + m.linear_layers * linear)


def _layer_bytes(m: Shape, sequence: int) -> tuple[float, float]:
    """Return the bytes per token that a layer of full and of linear attention keeps for the backward pass, without states."""
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    key_width, value_width = _linear_widths(m)
    inner = m.active_experts * m.expert_intermediate or m.intermediate
    mlp = 2 * m.hidden + 4 * inner
    attention = 2 * m.hidden + 4 * queries + 4 * keys
    linear = m.hidden + 3 * (2 * key_width + value_width) + 3 * value_width
    scale = ACTIVATION_COPIES * m.activation_bytes
    return scale * (attention + mlp) + SCORE_COPIES * 4 * m.heads * sequence, scale * (linear + mlp)


def _working_bytes(m: Shape, sequence: int) -> tuple[float, float]:
    """Return the further bytes per token in the backward pass of one attention and of one feed-forward part."""
    queries, keys = m.heads * m.head_dim, m.kv_heads * m.head_dim
    projections = PROJECTION_WORKING * m.activation_bytes * (2 * queries + 2 * keys)
    inner = m.active_experts * m.expert_intermediate or m.intermediate
    return projections + SCORE_WORKING * 4 * m.heads * sequence, MLP_WORKING * m.activation_bytes * inner


def _activations(m: Shape, plan: Plan) -> float:
    sequence = plan.prompt + plan.completion
    attention, linear = _layer_bytes(m, sequence)
    if plan.checkpoint:
        of_attention, of_mlp = _working_bytes(m, sequence)
        working = attention + max(of_attention, of_mlp)
        if m.linear_layers:
            of_states = max(STATES_WORKING * m.state_bytes, of_mlp)
            working = max(working, linear + STATES_KEPT * m.state_bytes + of_states)
        token = working + m.layers * m.hidden * m.activation_bytes
    else:
        token = (m.layers - m.linear_layers) * attention + m.linear_layers * (linear + STATES_KEPT * m.state_bytes)
        token += STATES_WORKING * m.state_bytes if m.linear_layers else 0.0
    return plan.rows * sequence * token


def _rollout(m: Shape, plan: Plan) -> float:
    cache = 2 * m.kv_heads * m.head_dim * m.activation_bytes * (plan.prompt + plan.completion)
    states = m.linear_layers * m.state_bytes
    return plan.rollout_rows * ((m.layers - m.linear_layers) * cache + states + LOGIT_COPIES * 4 * m.vocab)


def estimate(m: Shape, plan: Plan) -> Estimate:
    """Estimate the bytes of a step."""
    return Estimate(
        weights=parameters(m) * m.bits / 8,
        adapters=ADAPTER_COPIES * m.activation_bytes * _adapter_parameters(m, plan.rank),
        rollout=_rollout(m, plan),
        activations=_activations(m, plan),
        logits=LOGIT_COPIES * 4 * m.vocab * plan.logit_rows,
        trust=trust(m, plan),
    )


def trust(m: Shape, plan: Plan) -> str:
    """Return how near a plan is to what was measured: "near an anchor", "extrapolated", or "lower bound, OOM risk"."""
    sequence = plan.prompt + plan.completion
    if m.linear_layers and not plan.checkpoint and sequence > LONGEST_MEASURED:
        return "lower bound, OOM risk"
    if m.experts or plan.logit_rows < plan.rows * plan.completion:
        return "extrapolated"
    # (hybrid, checkpointed) and the tokens of one pass that were measured; a factor of 2 is near
    measured = {(False, False): (1100,), (True, True): (1218, 2436), (True, False): (256,)}
    near = measured.get((bool(m.linear_layers), plan.checkpoint), ())
    tokens = plan.rows * sequence
    large = parameters(m) >= 3e8  # the smallest measured model has 6e8
    return "near an anchor" if large and any(n / 2 <= tokens <= 2 * n for n in near) else "extrapolated"


def advice(m: Shape, plan: Plan, available: float) -> tuple[Plan | None, list[str]]:
    """Return the first plan that fits into `available` bytes, None if there is none, and what to change for it.

    The order of changes is: checkpointing, the head in pieces, a smaller G, shorter completions. The head in pieces is recommended only
    if it makes a smaller G or shorter completions unnecessary. A hybrid model whose memory is only known as a lower bound always
    gets checkpointing.
    """
    now = plan

    def fits(one: Plan) -> bool:
        return estimate(m, one).peak <= available and not trust(m, one).startswith("lower bound")

    def fits_somehow() -> bool:
        return fits(now) or fits(_in_pieces(now))

    if fits(now):
        return now, []
    now = replace(now, checkpoint=True)
    while not fits_somehow() and now.rows > 2:
        now = replace(now, rows=now.rows // 2, rollout_rows=max(now.rollout_rows // 2, 1))
    while not fits_somehow() and now.completion > 32:
        now = replace(now, completion=now.completion // 2)
    if not fits(now):
        now = _in_pieces(now)
    return now if fits(now) else None, _changes(plan, now)


def _changes(plan: Plan, now: Plan) -> list[str]:
    """Return what to set so that one plan becomes the other, the cheapest first."""
    steps: list[str] = []
    if now.checkpoint != plan.checkpoint:
        steps.append("model.checkpoint_layers = true")
    if now.head_rows != plan.head_rows:
        steps.append(f"loop.head_rows = {now.head_rows}")
    if now.rows != plan.rows:
        steps.append(
            f"a smaller G: {now.rows} completions at once (rollout.samples_per_prompt, or loop.micro_batch_rows)"
        )
    if now.completion != plan.completion:
        steps.append(f"rollout.max_tokens = {now.completion}")
    return steps


def _in_pieces(plan: Plan) -> Plan:
    """Return the plan with its head in pieces, unless that does not reduce its logits."""
    pieces = replace(plan, head_rows=HEAD_ROWS)
    return pieces if pieces.logit_rows < plan.logit_rows else plan


def read(folder: Path) -> Shape:
    """Read the shape of a model folder.

    Raises:
        ValueError: there is no readable config.json.
    """
    try:
        return shape(json.loads((folder / "config.json").read_bytes()))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{folder}: has no readable config.json ({error})") from None
