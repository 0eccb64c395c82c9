"""The peer rlox: its real advantages, GAE, KL, packing and best-of-n, through the functions that its users call.

The adapter neither repairs nor repeats a formula. A case with conventions that the peer lacks is unsupported.
`token_kl[k3]` is not in DEPARTURES_DOCUMENTED although the docstring writes its ratio the other way round
(rlox/_rlox_core.pyi:610): the same docstring calls it the unbiased estimator that TRL uses, so it announces no deviation.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import numpy as np
import rlox  # type: ignore[import-not-found]  # installed only in its own environment
import rlox_steps
import torch  # type: ignore[import-not-found,unused-ignore]
from peer_rows import absent, log_ratio_rows, mask_of, only, row_tokens
from peer_timed import Timed, only_output
from rlox.algorithms.best_of_n import BestOfN  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("rlox", "torch", "gymnasium")}
FLOATS = ("float32", "float64")
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {  # _rlox_core.pyi:538: "(reward - mean(rewards)) / std(rewards)", "zeros if std < 1e-8"
        "dtype": ("float64",),
        "scale": ("group",),
        "ddof": (0,),
        "eps": (1e-8,),
        "eps_mode": ("threshold",),
        "baseline": ("mean",),
    },
    "token_kl": {"dtype": FLOATS, "estimator": ("k3",), "reduction": ("sum",), "kl_ratio": ("none",)},
    "full_kl": {"dtype": FLOATS},
    "gae": {"dtype": FLOATS},
    "pack_sequences": {"strategy": ("first-fit-decreasing",), "over_long": ("error",)},  # what it does; see rlox.toml
    **rlox_steps.CONVENTIONS,
}


def _of(name: str, values: Array) -> Callable[..., Any]:
    """Return a function of rlox for the dtype of the values; float32 has a separate function."""
    return getattr(rlox, f"{name}_f32" if values.dtype == np.float32 else name)


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> dict[str, Any]:
    """Advantages of all groups in one call, with the declared conventions only."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **conventions)
    return {"advantages": rlox.compute_batch_group_advantages(rewards, group_size)}


def token_kl(policy: Array, reference: Array, *, lengths: Array | None, **x: Any) -> dict[str, Any]:
    """Sum of k3 per sequence: one call for a full batch, else one call for each sequence."""
    only("token_kl", CONVENTIONS["token_kl"], **x)
    absent("token_kl", mask=x["mask"], kl_clamp=x.get("kl_clamp"))
    if lengths is not None:
        return {"kl": log_ratio_rows(_of("compute_token_kl_schulman", policy), policy, reference, None, lengths)}
    batch = _of("compute_batch_token_kl_schulman", policy)
    return {"kl": batch(policy.reshape(-1), reference.reshape(-1), policy.shape[-1])}


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> dict[str, Any]:
    """Its "sum(exp(log_p) * (log_p - log_q))" is the divergence if the values cover the vocabulary."""
    batch = _of("compute_batch_token_kl", policy_logprobs)
    rows = batch(policy_logprobs.reshape(-1), reference_logprobs.reshape(-1), policy_logprobs.shape[-1])
    return {"kl": rows.reshape(policy_logprobs.shape[:-1])}


def gae(rewards: Array, values: Array, *, gamma: float, lam: float, **x: Any) -> dict[str, Any]:
    """One call for each row's tokens: rlox takes trajectories of one length, without a mask."""
    where = mask_of(rewards, x["mask"], x["lengths"])
    done = np.zeros_like(rewards) if x["terminal"] is None else x["terminal"].astype(rewards.dtype)
    last = np.zeros(len(where), rewards.dtype) if x["bootstrap"] is None else x["bootstrap"]
    run = _of("compute_gae_batched", rewards)
    steps = [row_tokens(part, where) for part in (rewards, values, done)]
    rows = [
        run(*row, after, row[0].size, gamma, lam)[0] if row[0].size else row[0]
        for *row, after in zip(*steps, last[:, None], strict=True)
    ]
    advantages = np.zeros_like(rewards)
    advantages[where if rewards.ndim > 1 else ...] = np.concatenate(rows)
    return {"advantages": advantages}


def pack_sequences(lengths: Array, max_length: int, **conventions: Any) -> dict[str, Any]:
    """Bins of sequences whose tokens are their own index; the efficiency is counted from its attention masks."""
    only("pack_sequences", CONVENTIONS["pack_sequences"], **conventions)
    if not lengths.size or not lengths.all():
        raise NotImplementedError("rlox returns tokens: nothing says where an empty sequence went")
    bins = rlox.pack_sequences([np.full(length, index, np.uint32) for index, length in enumerate(lengths)], max_length)
    held = [bin_["input_ids"][bin_["sequence_starts"]] for bin_ in bins]
    tokens = sum(int(bin_["attention_mask"].sum()) for bin_ in bins)
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


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function for function in (group_advantages, token_kl, full_kl, gae, pack_sequences, best_of_n)
} | rlox_steps.OPS


def timed_group_advantages(rewards: Array, group_size: int, **_: Any) -> Timed:
    """The call of `group_advantages`."""
    names = {"compute_batch_group_advantages": rlox.compute_batch_group_advantages, "rewards": rewards}
    return Timed(f"compute_batch_group_advantages(rewards, {group_size})", names, only_output("advantages"))


def timed_token_kl(policy: Array, reference: Array, **_: Any) -> Timed:
    """The call of `token_kl` for a full batch, its arguments as its documentation says."""
    name = f"compute_batch_token_kl_schulman{'_f32' if policy.dtype == np.float32 else ''}"
    names = {"policy": policy.reshape(-1), "reference": reference.reshape(-1), name: getattr(rlox, name)}
    return Timed(f"{name}(policy, reference, {policy.shape[-1]})", names, only_output("kl"))


def timed_pack_sequences(lengths: Array, max_length: int, **_: Any) -> Timed:
    """The call of `pack_sequences`; a sequence's tokens are its own index."""
    names = {
        "pack_sequences": rlox.pack_sequences,
        "sequences": [np.full(length, index, np.uint32) for index, length in enumerate(lengths.tolist())],
    }

    def answer(bins: list[dict[str, Any]]) -> dict[str, Any]:
        held = [bin_["input_ids"][bin_["sequence_starts"]] for bin_ in bins]
        return {"indices": np.concatenate(held).astype(np.int64), "offsets": np.cumsum([0, *map(len, held)])}

    note = "it takes whole sequences and returns tokens, masks and positions: the copying is in its time"
    return Timed(f"pack_sequences(sequences, {max_length})", names, answer, note)


TIMED: dict[str, Callable[..., Timed]] = {
    "group_advantages": timed_group_advantages,
    "token_kl": timed_token_kl,
    "pack_sequences": timed_pack_sequences,
}
