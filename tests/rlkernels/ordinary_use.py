"""Twelve lines of ordinary use of each kernel, which mypy and pyright accept and which run: test_types.py asks both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_type

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

import rlkernels

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
rng = np.random.default_rng(0)
logprobs: F32 = -rng.random((4, 6), np.float32)
doubles: F64 = -rng.random((4, 6))
logits: F32 = rng.standard_normal((4, 9), np.float32)
rewards: F64 = rng.random(4)
mask: NDArray[np.bool] = np.ones((4, 6), np.bool)
mx_mask = mx.array([[True] * 6] * 4)
ids: NDArray[np.int64] = rng.integers(0, 9, 4)


def show(*values: object) -> None:
    """Use what a kernel returned."""
    assert values


class Series:
    """A column of a table, which NumPy reads by `__array__` alone."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values."""
        return np.array([1.0, 0.0, 0.5, 0.5], dtype)


def group_advantages() -> None:
    """Rewards of every kind."""
    assert_type(rlkernels.group_advantages(rewards, 2), F64)
    assert_type(rlkernels.group_advantages(rewards.astype(np.float32), 2), F32)
    assert_type(rlkernels.group_advantages([1.0, 0.0, 0.5, 0.5], 2), F64)
    assert_type(rlkernels.group_advantages([1, 0, 2, 2], 2, ddof=0), F64)
    assert_type(rlkernels.group_advantages([True, False, True, True], 4), F64)
    assert_type(rlkernels.group_advantages(ids, 2, eps=0.0), F64)
    rlkernels.group_advantages(np.array([1, 0, 0, 1]), 2)
    assert_type(rlkernels.group_advantages(rewards > 0.5, 2), F64)
    rlkernels.group_advantages((1.0, 2.0), 2, scale="batch", baseline="leave-one-out")
    rlkernels.group_advantages(mx.array([1.0, 0.0]), 2, eps_mode="inside").astype(np.float32)
    rlkernels.group_advantages(Series(), 2, scale="none")
    rlkernels.group_advantages(rewards, 2, out=np.empty(4))
    rlkernels.group_advantages(rewards.reshape(2, 2).reshape(-1), int(np.int64(2)))


def normalise_then_sum() -> None:
    """Two reward functions."""
    columns = rng.random((4, 2))
    narrow = columns.astype(np.float32)
    stages: dict[str, Any] = {"group_ddof": 1, "group_eps": 1e-4, "batch_ddof": 1, "batch_eps": 1e-4}
    assert_type(
        rlkernels.normalise_then_sum(columns, [0.5, 1.0], 2, group_ddof=1, group_eps=0.1, batch_ddof=0, batch_eps=0.1),
        F64,
    )
    show(rlkernels.normalise_then_sum(narrow, narrow[0], 2, **stages).mean())
    rlkernels.normalise_then_sum([[1.0, 2.0], [0.0, 1.0]], [1.0, 1.0], 2, **stages)
    rlkernels.normalise_then_sum([[True, False], [False, True]], (1, 1), 2, **stages)
    rlkernels.normalise_then_sum(mx.array(narrow), mx.array([1.0, 1.0]), 2, **stages).sum()
    rlkernels.normalise_then_sum(narrow, mx.array([1.0, 1.0]), 2, **stages)
    rlkernels.normalise_then_sum(columns, np.ones(2), 4, out=np.empty(4), **stages)
    rlkernels.normalise_then_sum(narrow, np.ones(2, np.float32), 4, out=np.empty(4, np.float32), **stages)


def gae() -> None:
    """Rewards and values of tokens."""
    assert_type(rlkernels.gae(doubles, doubles, gamma=0.99, lam=0.95), F64)
    assert_type(rlkernels.gae(logprobs, logprobs, gamma=1, lam=1, mask=mask), F32)
    rlkernels.gae([1.0, 0.0], [0.5, 0.5], gamma=0.9, lam=0.9)
    rlkernels.gae(np.array([0, 1]), np.zeros(2), gamma=0.9, lam=0.9)
    rlkernels.gae(doubles, doubles, gamma=0.9, lam=0.9, bootstrap=rewards, lengths=[6, 5, 4, 3])
    rlkernels.gae(doubles, doubles, gamma=0.9, lam=0.9, bootstrap=[0.0] * 4, lengths=np.array([6, 5, 4, 3]))
    rlkernels.gae(doubles, doubles, gamma=0.9, lam=0.9, terminal=[[0] * 5 + [1]] * 4)
    rlkernels.gae(mx.array(logprobs), mx.array(logprobs), gamma=0.9, lam=0.9, mask=mx_mask).mean()
    rlkernels.gae(logprobs, mx.array(logprobs), gamma=0.9, lam=0.9, mask=mask.astype(int))
    rlkernels.gae(doubles, doubles, gamma=0.9, lam=0.9, out=np.empty((4, 6)))
    rlkernels.gae([True, False], [0.5, 0.5], gamma=0.9, lam=0.9)


def token_kl() -> None:
    """Values of tokens, and of rows."""
    assert_type(rlkernels.token_kl(logprobs, logprobs, estimator="k3"), F32)
    assert_type(rlkernels.token_kl(doubles, doubles, estimator="k1", mask=mask), F64)
    assert_type(rlkernels.token_kl(doubles, doubles, estimator="k2", reduction="none"), F64)
    rows = rlkernels.token_kl(doubles, doubles, estimator="k3", reduction="mean", lengths=[6, 5, 4, 3])
    show(rows.tolist(), rows.sum() / 2)
    total = rlkernels.token_kl(doubles[0], doubles[1], estimator="k3", reduction="sum")
    show(float(total), total.item())
    rlkernels.token_kl([-1.0, -2.0], [-1.5, -2.5], estimator="k3").tolist()
    rlkernels.token_kl(mx.array(logprobs), mx.array(logprobs), estimator="k3", mask=mx_mask).tolist()
    rlkernels.token_kl(logprobs, mx.array(logprobs), estimator="k3", old=logprobs, kl_ratio="token")
    rlkernels.token_kl(mx.array(logprobs).astype(mx.bfloat16), logprobs, estimator="k1")
    rlkernels.token_kl(logprobs, logprobs, estimator="k3", mask=[[1, 1, 1, 1, 0, 0]] * 4, out=np.empty_like(logprobs))


def full_kl() -> None:
    """Whole vocabularies."""
    p = np.log(np.full((2, 4), 0.25))
    narrow = p.astype(np.float32)
    show(rlkernels.full_kl(p, p).tolist())
    show(float(rlkernels.full_kl(p[0], p[1])))
    rlkernels.full_kl(narrow, narrow).astype(np.float64)
    rlkernels.full_kl(narrow, mx.array(narrow))
    rlkernels.full_kl(mx.array(narrow), mx.array(narrow))
    rlkernels.full_kl([-0.7, -0.7], [-0.7, -0.7])
    rlkernels.full_kl(p, p, out=np.empty(2))


def selective_log_softmax() -> None:
    """The result goes on into other kernels; `entropy` may be a variable."""
    chosen = rlkernels.selective_log_softmax(logits, ids)
    rlkernels.policy_loss(chosen.reshape(1, -1), advantages=[1.0], algorithm="grpo")
    rlkernels.policy_loss(chosen, advantages=[1.0], algorithm="grpo")
    both = rlkernels.selective_log_softmax(logits, ids, entropy=True)
    show(both[0].shape, both[1].mean())
    wide, entropy = rlkernels.selective_log_softmax(logits.astype(np.float64), [1, 2, 3, 4], entropy=True)
    rlkernels.importance_ratio(wide, wide, level="token")
    wanted = len(entropy) > 3
    either = rlkernels.selective_log_softmax(logits, ids, entropy=wanted, temperature=0.7)
    show(either[0])
    rlkernels.selective_log_softmax(mx.array(logits).astype(mx.bfloat16), mx.array(ids), ignore_index=-100).tolist()
    rlkernels.selective_log_softmax(logits.astype(np.float16), [[1, 2]] * 4)
    show(float(rlkernels.selective_log_softmax([1.0, 2.0, 3.0], np.array(2))))


def selective_log_softmax_backward() -> None:
    """Gradients from above of every kind."""
    g = np.ones(4, np.float32)
    show(rlkernels.selective_log_softmax_backward(logits, ids, g).shape)
    rlkernels.selective_log_softmax_backward(logits, [1, 2, 3, 4], g, grad_entropy=g, temperature=0.5)
    rlkernels.selective_log_softmax_backward(logits, ids, [1.0] * 4, grad_entropy=[0.1] * 4)
    rlkernels.selective_log_softmax_backward(mx.array(logits), mx.array(ids), mx.array(g)).astype(np.float64)
    rlkernels.selective_log_softmax_backward(mx.array(logits).astype(mx.bfloat16), ids, g)
    rlkernels.selective_log_softmax_backward(logits.astype(np.float16), ids, g, out=np.empty((4, 9), np.float16))
    rlkernels.selective_log_softmax_backward(logits, ids, g, ignore_index=-100, out=np.empty_like(logits))


def pack_sequences() -> None:
    """Lengths in a list, an array or a range."""
    indices, offsets, efficiency = rlkernels.pack_sequences([5, 3, 4], 8)
    assert_type(indices, NDArray[np.int64])
    assert_type(efficiency, float)
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        show(indices[start:end].tolist())
    rlkernels.pack_sequences(np.array([5, 3]), 8, strategy="best-fit-decreasing")
    rlkernels.pack_sequences((9, 3), 8, over_long="truncate")
    pieces = rlkernels.pack_sequences([9, 3], 8, over_long="split", strategy="wrapped")
    show(pieces[3].sum(), pieces[4].sum())
    rlkernels.pack_sequences(mx.array([5, 3]), 8)
    rlkernels.pack_sequences(range(1, 5), 8)
    rlkernels.pack_sequences([len(text) for text in ("a", "bc")], 8)


def random_numbers() -> None:
    """Numbers, lists and arrays broadcast."""
    show(rlkernels.uniforms(7, 0, [0, 1, 2], 0, 5).tolist())
    show(float(rlkernels.uniforms(7, 0, 0, 0, 5)))
    rlkernels.uniforms(np.uint64(7), np.int64(1), np.arange(3), [[0], [1]], 0)
    rlkernels.uniforms(7, 0, mx.array([0, 1]), 0, 5)
    rlkernels.xtc_coins(7, 0, range(3), 0, 5).mean()
    rlkernels.xtc_coins(7, 0, (0, 1), np.array([0, 1]), 5)
    show(rlkernels.philox4x32_10([0, 0, 0, 0], [1, 2]).tolist())
    rlkernels.philox4x32_10(np.zeros((3, 4), int), np.array([1, 2]))
    rlkernels.philox4x32_10([[0, 0, 0, 1], [0, 0, 0, 2]], [1, 2])


def filtered_logprobs() -> None:
    """Filters and penalties."""
    assert_type(rlkernels.filtered_logprobs(logits, order="hf", temperature=0.7, top_p=0.9), F64)
    rlkernels.filtered_logprobs(mx.array(logits), order="mlx-lm", temperature=1, top_k=3)
    out = np.empty((4, 9), np.float32)
    assert_type(rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, out=out), F32)
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, repetition_penalty=1.1, history=[[1, 2]] * 4)
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, presence_penalty=0.5, generated=ids.reshape(4, 1))
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, logit_bias={3: -1.5, 4: float("-inf")})
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, logit_bias=[0.0] * 9)
    rlkernels.filtered_logprobs([[1.0, 2.0]], order="hf", temperature=1.0, min_p=0.1)
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, xtc_probability=0.5, xtc_coin=[0.1] * 4)
    rlkernels.filtered_logprobs(logits, order="hf", temperature=1.0, xtc_special_tokens=[0, 1])
    rlkernels.filtered_logprobs(logits.astype(np.float16), order="hf", temperature=0)


def sample_tokens() -> None:
    """Draws with uniforms of every kind."""
    u = rlkernels.uniforms(7, 0, [0, 1, 2, 3], 0, 0)
    tokens, drawn = rlkernels.sample_tokens(logits, u, order="hf", temperature=1.0)
    assert_type(tokens, NDArray[np.int64])
    assert_type(drawn, F64)
    rlkernels.sample_tokens(logits, [0.1, 0.2, 0.3, 0.4], order="mlx-lm", temperature=0.7, top_p=0.9)
    rlkernels.sample_tokens(mx.array(logits), mx.array([0.1] * 4), order="hf", temperature=1.0)
    rlkernels.sample_tokens(
        logits, u, order="hf", temperature=1.0, repetition_penalty=1.1, history=np.ones((4, 2), int)
    )
    rlkernels.sample_tokens(logits, u, order="hf", temperature=1.0, repetition_penalty=1.1, history=mx.array([[1]] * 4))
    rlkernels.sample_tokens(logits, u, order="hf", temperature=1.0, logit_bias={0: 2})
    rlkernels.sample_tokens([[1.0, 2.0]], [0.5], order="hf", temperature=1.0, ties="lower-id")


def ratios() -> None:
    """Ratios, weights and statistics."""
    rlkernels.importance_weights(logprobs, mx.array(logprobs), correction="tis", level="token", c_max=2.0)
    show(rlkernels.importance_ratio(logprobs, logprobs, level="token").sum())
    show(rlkernels.importance_ratio(doubles, doubles, level="seq_mean", lengths=[6, 5, 4, 3]).tolist())
    show(float(rlkernels.importance_ratio(doubles[0], doubles[1], level="seq_sum")))
    rlkernels.importance_ratio(mx.array(logprobs), mx.array(logprobs), level="token", mask=mask).tolist()
    rlkernels.importance_ratio([-1.0, -2.0], [-1.5, -2.5], level="token")
    rlkernels.importance_ratio(logprobs, mx.array(logprobs).astype(mx.bfloat16), level="token")
    rlkernels.importance_weights(doubles, doubles, correction="mis", level="seq_sum", c_min=0.5, c_max=2)
    statistics = rlkernels.ratio_statistics(logprobs, logprobs, epsilon_low=0.2, epsilon_high=0.2)
    assert_type(statistics["mean"], float)
    rlkernels.ratio_statistics(doubles, doubles, epsilon_low=0.2, epsilon_high=0.2, advantages=[1.0, 0, -1, 2])
    rlkernels.ratio_statistics([-1.0], [-1.1], epsilon_low=0, epsilon_high=0, mask=[True])


def policy_loss() -> None:
    """Arrays of every kind, and what other kernels return."""
    advantages = rlkernels.group_advantages(rewards, 2)
    step = rlkernels.policy_loss(doubles, old=doubles, advantages=advantages, algorithm="grpo", lengths=[6, 5, 4, 3])
    assert_type(step.loss, float)
    show(step.gradient.shape, step.metrics["tokens"])
    rlkernels.policy_loss(logprobs, advantages=[1.0, -1.0, 0.5, -0.5], algorithm="dr_grpo", max_length=6)
    rlkernels.policy_loss(doubles, advantages=advantages.reshape(-1, 1), algorithm="grpo")
    rlkernels.policy_loss(
        mx.array(logprobs),
        old=mx.array(logprobs),
        advantages=mx.array([1.0] * 4),
        algorithm="dapo",
        dapo_denominator="global",
    )
    rlkernels.policy_loss(
        doubles, advantages=[1.0] * 4, reference=doubles, beta=0.1, kl_estimator="k3", algorithm="grpo"
    )
    rlkernels.policy_loss(doubles, advantages=[1.0] * 4, algorithm="bnpo-trl", micro_batches=[2, 2], mask=mask.tolist())
    rlkernels.policy_loss([-1.0, -2.0], advantages=[1.0], algorithm="grpo")
    rlkernels.policy_loss(
        doubles, advantages=[1.0] * 4, weights=rewards, row_mask=[True, True, False, True], algorithm="grpo"
    )
    weights = rlkernels.importance_weights(doubles, doubles, correction="tis", level="token", c_max=2.0)
    rlkernels.policy_loss(doubles, advantages=advantages, weights=weights, algorithm="grpo", out=np.empty((4, 6)))


def housekeeping() -> None:
    """Facts and settings."""
    assert_type(rlkernels.__version__, str)
    info = rlkernels.build_info()
    before = rlkernels.use_isa(info["isa"])
    show(before, rlkernels.available_isas()[0], rlkernels.set_threads(info["threads"]))


USES: list[Callable[[], None]] = [
    group_advantages,
    normalise_then_sum,
    gae,
    token_kl,
    full_kl,
    selective_log_softmax,
    selective_log_softmax_backward,
    pack_sequences,
    random_numbers,
    filtered_logprobs,
    sample_tokens,
    ratios,
    policy_loss,
    housekeeping,
]
