"""The peer rlox: its real advantages, GAE, KL, packing and best-of-n, through the functions that its users call.

Nothing here repairs or repeats a formula of the peer. A case whose conventions the peer does not have is unsupported.
`token_kl[k3]` stands in no DEPARTURES_DOCUMENTED although the docstring writes its ratio the other way round
(rlox/_rlox_core.pyi:610): the same docstring calls it the unbiased estimator that TRL uses, so it announces no deviation.
"""

from __future__ import annotations

from importlib.metadata import version
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import rlox  # type: ignore[import-not-found]  # only its own environment has it
import torch  # type: ignore[import-not-found,unused-ignore]
from rlox.algorithms.best_of_n import BestOfN  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("rlox", "torch", "gymnasium")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {  # _rlox_core.pyi:538: "(reward - mean(rewards)) / std(rewards)", "zeros if std < 1e-8"
        "dtype": ("float64",),
        "scale": ("group",),
        "ddof": (0,),
        "eps": (1e-8,),
        "eps_mode": ("threshold",),
        "baseline": ("mean",),
    },
    "token_kl": {
        "dtype": ("float32", "float64"),
        "estimator": ("k3",),
        "reduction": ("sum",),
        "kl_ratio": ("none",),
    },
    "full_kl": {"dtype": ("float32", "float64")},
    "gae": {"dtype": ("float32", "float64")},
    "pack_sequences": {
        "strategy": ("first-fit-decreasing",),
        "over_long": ("error", "truncate"),  # what it does; what _rlox_core.pyi:739 says: longer ones "are truncated"
    },
}


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> dict[str, Any]:
    """Advantages of all groups in one call; the declared conventions are the only ones it has."""
    _only("group_advantages", dtype=str(rewards.dtype), **conventions)
    return {"advantages": rlox.compute_batch_group_advantages(rewards, group_size)}


def token_kl(
    policy: Array, reference: Array, *, mask: Array | None, lengths: Array | None, old: Array | None, **conventions: Any
) -> dict[str, Any]:
    """Sum of k3 per sequence: one call for a full batch, else one call for each sequence."""
    _only("token_kl", dtype=str(policy.dtype), **conventions)
    if mask is not None:
        raise NotImplementedError("rlox's KL takes no mask")
    del old  # read by no estimate that is multiplied by no ratio
    single = policy.dtype == np.float32
    if lengths is None:
        batch = rlox.compute_batch_token_kl_schulman_f32 if single else rlox.compute_batch_token_kl_schulman
        return {"kl": batch(policy.reshape(-1), reference.reshape(-1), policy.shape[-1])}
    one = rlox.compute_token_kl_schulman_f32 if single else rlox.compute_token_kl_schulman
    pairs = zip(_sequences(policy, lengths), _sequences(reference, lengths), strict=True)
    return {"kl": np.array([one(left, right) for left, right in pairs])}


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> dict[str, Any]:
    """Its "sum(exp(log_p) * (log_p - log_q))" is the divergence where the values are those of a whole vocabulary."""
    single = policy_logprobs.dtype == np.float32
    batch = rlox.compute_batch_token_kl_f32 if single else rlox.compute_batch_token_kl
    rows = batch(policy_logprobs.reshape(-1), reference_logprobs.reshape(-1), policy_logprobs.shape[-1])
    return {"kl": rows.reshape(policy_logprobs.shape[:-1])}


def gae(
    *,
    rewards: Array,
    values: Array,
    gamma: float,
    lam: float,
    bootstrap: Array | None,
    terminal: Array | None,
    mask: Array | None,
    lengths: Array | None,
) -> dict[str, Any]:
    """One call for each row's tokens: rlox takes trajectories of one length, without a mask."""
    found = np.zeros_like(rewards)
    where = _places(rewards, mask, lengths)
    last = np.zeros(len(where), rewards.dtype) if bootstrap is None else bootstrap
    done = np.zeros_like(rewards) if terminal is None else terminal.astype(rewards.dtype)
    run = rlox.compute_gae_batched_f32 if rewards.dtype == np.float32 else rlox.compute_gae_batched
    for row, at in enumerate(where):
        if at[0].size:
            steps = (np.ascontiguousarray(part[at]) for part in (rewards, values, done))
            found[at] = run(*steps, last[row : row + 1], at[0].size, gamma, lam)[0]
    return {"advantages": found}


def _places(rewards: Array, mask: Array | None, lengths: Array | None) -> list[tuple[Array, ...]]:
    """Return the places of each row's tokens."""
    if rewards.ndim == 1:
        assert lengths is not None
        return [(part,) for part in np.split(np.arange(rewards.size), np.cumsum(lengths)[:-1])]
    chosen = np.ones(rewards.shape, bool) if mask is None else mask
    if lengths is not None:
        chosen = np.arange(rewards.shape[1]) < lengths[:, None]
    return [(np.full(row.sum(), index), np.flatnonzero(row)) for index, row in enumerate(chosen)]


def pack_sequences(lengths: Array, max_length: int, **conventions: Any) -> dict[str, Any]:
    """Bins of sequences whose tokens are their own index, so that what it returns says where each one went.

    rlox reports no efficiency: it is counted from the attention masks that it returns.
    """
    _only("pack_sequences", **conventions)
    if not lengths.size or not lengths.all():
        raise NotImplementedError(
            "rlox returns tokens: nothing says where an empty sequence went, or how full no bin is"
        )
    sequences = [np.full(length, index, np.uint32) for index, length in enumerate(lengths.tolist())]
    bins = rlox.pack_sequences(sequences, max_length)
    held = [found["input_ids"][found["sequence_starts"]] for found in bins]
    tokens = sum(int(found["attention_mask"].sum()) for found in bins)
    return {
        "indices": np.concatenate(held).astype(np.int64),
        "offsets": np.cumsum([0, *map(len, held)]),
        "efficiency": tokens / (len(bins) * max_length),
    }


def best_of_n(scores: Array, group_size: int) -> dict[str, Any]:
    """Rows by completions that hold their own index; a model that returns them stands for the language model."""
    rows = torch.arange(len(scores))[:, None]
    model = SimpleNamespace(generate=lambda *_, **__: rows)
    best = BestOfN(model, lambda *_: scores.tolist(), n=group_size)
    return {"rows": best.generate(rows[::group_size])[:, 0].numpy()}


def _sequences(values: Array, lengths: Array) -> list[Array]:
    """Return the valid prefix of each row, or the parts of a flat array."""
    if values.ndim == 1:
        return np.split(values, np.cumsum(lengths)[:-1])
    return [row[:length] for row, length in zip(values, lengths, strict=True)]


def _only(op: str, **asked: Any) -> None:
    """Refuse what rlox does not have: its functions take no options."""
    for name, choice in asked.items():
        if choice not in CONVENTIONS[op][name]:
            raise NotImplementedError(f"{op} of rlox has {name} {CONVENTIONS[op][name]}, not {choice!r}")


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": group_advantages,
    "token_kl": token_kl,
    "full_kl": full_kl,
    "gae": gae,
    "pack_sequences": pack_sequences,
    "best_of_n": best_of_n,
}
