"""What is rolled out: random float32 Qwen3 models, one prompt, and lengths that are the same for everybody."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

#: Random Qwen3 models. `tiny` has 3.4 million parameters, `ten` ten times that, `narrow` a large vocabulary on little else.
MODELS = {
    "tiny": {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 768, "num_attention_heads": 4},
    "ten": {"hidden_size": 640, "num_hidden_layers": 6, "intermediate_size": 2176, "num_attention_heads": 10},
    "narrow": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128, "num_attention_heads": 2},
}
KEY_VALUE_HEADS = {"tiny": 2, "ten": 5, "narrow": 1}
VOCABULARY = {"tiny": 512, "ten": 512, "narrow": 151_936}
HEAD = {"tiny": 64, "ten": 64, "narrow": 32}
SPREAD = 3.0  # the logits' standard deviation: of 512 tokens a few dozen are likely, as in text
TEMPERATURE, TOP_P = 0.7, 0.95
SEED = 7


@dataclass(frozen=True, slots=True)
class Work:
    """G completions of one prompt; `lengths` are how many tokens each has."""

    model: str
    samples: int
    tokens: int
    prompt: int
    early: bool

    @property
    def name(self):
        """Return the shape's name in the speed file."""
        return f"G{self.samples} T{self.tokens} prompt {self.prompt}{' geometric' if self.early else ''}"

    def prompt_ids(self):
        """Return the prompt (P,)."""
        rng = np.random.default_rng(SEED + self.prompt)
        return rng.integers(3, VOCABULARY[self.model], self.prompt).astype(np.int32)

    def lengths(self):
        """Return geometric lengths (G,) with a mean of a third of the limit before they are cut there, or all the limit."""
        if not self.early:
            return np.full(self.samples, self.tokens)
        drawn = np.random.default_rng(SEED).geometric(3.0 / self.tokens, self.samples)
        return np.clip(drawn, 2, self.tokens)  # mlxrl takes a first token from the prefill, so nobody ends there


def arguments(name):
    """Return the keywords of mlx-lm's Qwen3."""
    return {
        "model_type": "qwen3",
        "rms_norm_eps": 1e-6,
        "vocab_size": VOCABULARY[name],
        "num_key_value_heads": KEY_VALUE_HEADS[name],
        "max_position_embeddings": 4096,
        "rope_theta": 10000.0,
        "head_dim": HEAD[name],
        "tie_word_embeddings": False,
        **MODELS[name],
    }


@cache
def model(name):
    """Return the model, its weights a function of its name."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten
    from mlx_lm.models import qwen3

    made = qwen3.Model(qwen3.ModelArgs(**arguments(name)))
    rng = np.random.default_rng(SEED)
    weights = []
    for leaf, x in sorted(tree_flatten(made.parameters())):
        if x.ndim < 2:
            continue
        scale = 1.0 if "embed" in leaf else (SPREAD if "lm_head" in leaf else 1.0) / np.sqrt(x.shape[1])
        weights.append((leaf, mx.array(rng.standard_normal(x.shape, np.float32) * np.float32(scale))))
    made.update(tree_unflatten(weights))
    mx.eval(made.parameters())
    made.freeze()
    return made


def parameters(name):
    """Return how many numbers a model has."""
    from mlx.utils import tree_flatten

    return sum(x.size for _, x in tree_flatten(model(name).parameters()))


def request(work):
    """Return the work as the reference trainer takes it."""
    from reference.trainer import sampling
    from reference.trainer.rollout import table

    return table.Request(
        prompts=[work.prompt_ids()],
        rows=np.array([[0, j] for j in range(work.samples)]),
        samples=work.samples,
        max_tokens=work.tokens,
        settings=sampling.Settings(temperature=TEMPERATURE, top_p=TOP_P),
        eos_ids=np.zeros(0, np.int64),
        seed=SEED,
        limits=work.lengths(),
    )
