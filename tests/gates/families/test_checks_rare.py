"""What data rarely hold is among the gates' inputs: a mistake that acts there alone is found.

Each of these went unseen once, when the NumPy baseline was changed at every operator and constant in turn.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from broken import verdicts

WRAPPED = """
import numpy as np
from gates.subjects.numpy_baseline import subject as whole

OP = "{op}"

def mistaken(inputs):
{mistake}

OPS = {{OP: lambda **inputs: mistaken(inputs)}}
"""
NO_MASK_IS_ANOTHER_LOSS = """\
    found = whole.OPS["policy_loss"](**inputs)
    return {**found, "loss": 2.0 * found["loss"]} if inputs["mask"] is None and inputs["lengths"] is None else found
"""
LONGEST_ROW_IS_THE_WIDTH = """\
    lengths = inputs["lengths"]
    if lengths is not None and inputs["policy"].ndim == 2:
        shape = inputs["policy"].shape
        cut = lambda x: x[:, : lengths.max()] if isinstance(x, np.ndarray) and x.shape == shape else x
        inputs = {name: cut(value) for name, value in inputs.items()}
    return whole.OPS[OP](**inputs)
"""
LAST_COLUMN_IS_PADDING = """\
    lengths = inputs["lengths"]
    if lengths is not None and inputs["policy"].ndim == 2:
        inputs = {**inputs, "lengths": np.minimum(lengths, inputs["policy"].shape[1] - 1)}
    return whole.OPS[OP](**inputs)
"""
INFINITY_TIMES_ZERO = """\
    found = whole.OPS["policy_loss"](**inputs)
    with np.errstate(over="ignore", invalid="ignore"):
        terms = np.exp(inputs["policy"] - inputs["old"]).T * inputs["advantages"]
    return {**found, "loss": np.nan if np.isnan(terms).any() else found["loss"]}
"""
MEAN_OF_NO_TOKENS = """\
    found = whole.OPS["preference_loss"](**inputs)
    return found if inputs["mask"].any(axis=1).all() else {**found, "loss": np.nan}
"""
TOP_P_AT_ONE_ACTS = """\
    return whole.OPS["filtered_logprobs"](**{**inputs, "top_p": min(inputs["top_p"], 1 - 2.0**-53)})
"""
TOP_K_FROM_TWO = """\
    return whole.OPS["sample_tokens"](**{**inputs, "top_k": 0 if inputs["top_k"] == 1 else inputs["top_k"]})
"""
TOP_K_WRAPS = """\
    return whole.OPS["filtered_logprobs"](**{**inputs, "top_k": inputs["top_k"] % inputs["logits"].shape[1]})
"""
NAIVE_SOFTMAX = """\
    found = whole.OPS["filtered_logprobs"](**inputs)
    with np.errstate(over="ignore"):
        total = np.exp(inputs["logits"], dtype=inputs["logits"].dtype).sum(axis=1)
    return {"logprobs": np.where(np.isfinite(total)[:, None], found["logprobs"], -np.inf)}
"""
NAIVE_MASSES = """\
    found = whole.OPS["filtered_logprobs"](**inputs)
    if inputs["top_p"] == 1:
        return found
    with np.errstate(over="ignore"):
        total = np.exp(inputs["logits"], dtype=inputs["logits"].dtype).sum(axis=1)
    without = whole.OPS["filtered_logprobs"](**{**inputs, "top_p": 1.0})
    return {"logprobs": np.where(np.isfinite(total)[:, None], found["logprobs"], without["logprobs"])}
"""
XTC_REMOVES_THE_LIKELIEST = """\
    found = whole.OPS["filtered_logprobs"](**inputs)["logprobs"]
    if inputs["xtc_coin"] is not None:
        plain = whole.OPS["filtered_logprobs"](**{**inputs, "xtc_probability": 0.0, "xtc_coin": None})["logprobs"]
        acts = inputs["xtc_coin"] < inputs["xtc_probability"]
        flat = acts & (np.exp(plain).max(axis=1) < inputs["xtc_threshold"])
        found[flat, plain[flat].argmax(axis=1)] = -np.inf
    return {"logprobs": found}
"""
TIME_FIRST = """\
    swapped = lambda x: np.swapaxes(x, 0, 1).reshape(x.shape) if x.ndim > 1 else x
    found = whole.OPS[OP](**inputs)
    batch = next(iter(inputs.values())).ndim == 3
    return {name: swapped(x) for name, x in found.items()} if batch else found
"""


@pytest.mark.parametrize(
    ("gate", "op", "mistake", "case"),
    [
        ("loss.grpo.matches-definition", "policy_loss", NO_MASK_IS_ANOTHER_LOSS, "no-mask"),
        ("loss.grpo.matches-definition", "policy_loss", LONGEST_ROW_IS_THE_WIDTH, "prefixes"),
        ("loss.grpo.matches-definition", "policy_loss", LAST_COLUMN_IS_PADDING, "prefixes-to-the-end"),
        ("ratio.matches-definition", "importance_ratio", LONGEST_ROW_IS_THE_WIDTH, "token-wider-typical-float32"),
        ("ratio.matches-definition", "importance_ratio", LAST_COLUMN_IS_PADDING, "token-prefix-typical-float32"),
        (
            "loss.extreme-ratios-stay-numbers",
            "policy_loss",
            INFINITY_TIMES_ZERO,
            "grpo-plain-beyond-float32-neither-float32",
        ),
        ("preference.ipo.matches-definition", "preference_loss", MEAN_OF_NO_TOKENS, "mean-without-tokens-float32"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", TOP_P_AT_ONE_ACTS, "peaked-hf-float32"),
        ("sampling.draw.inverse-cdf", "sample_tokens", TOP_K_FROM_TWO, "top-k-one-hf-float32"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", TOP_K_WRAPS, "top-k-beyond-hf-float32"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", NAIVE_SOFTMAX, "raised-hf-float32"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", NAIVE_SOFTMAX, "raised-hf-float64"),
        ("sampling.filters.keep-the-right-tokens", "filtered_logprobs", NAIVE_MASSES, "raised-top-p-hf-float32"),
        (
            "sampling.filters.keep-the-right-tokens",
            "filtered_logprobs",
            XTC_REMOVES_THE_LIKELIEST,
            "xtc-flat-hf-float32",
        ),
        ("logprobs.selective.matches-definition", "selective_log_softmax", TIME_FIRST, "batch-float32"),
        ("logprobs.entropy.matches-definition", "selective_log_softmax", TIME_FIRST, "batch-float32"),
        ("logprobs.backward.matches-definition", "selective_log_softmax_backward", TIME_FIRST, "batch-float32-entropy"),
        ("kl.full.matches-definition", "full_kl", TIME_FIRST, "batch-500-float32"),
    ],
)
def test_a_mistake_in_a_rare_input_is_found(tmp_path: Path, gate: str, op: str, mistake: str, case: str) -> None:
    """The case that holds it fails, and a case that does not passes."""
    code = WRAPPED.format(op=op, mistake=mistake)
    found = {verdict.case: verdict for verdict in verdicts(tmp_path, code, gate, quick=False)}
    assert found[case].status in {"wrong", "fragile", "hardening"}, found[case].reason
    assert found[case].cause in {"bound", "shape"}, found[case].reason
    assert any(verdict.status == "correct" for verdict in found.values())
