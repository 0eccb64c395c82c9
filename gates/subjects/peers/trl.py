"""The peer trl: losses, advantages, importance weights, log-probs, preference losses and packing of its own trainers.

Trainers are made without `__init__` (no model, no data set) and get the attributes that it copies from a real config.
Generation and forward passes are stubs that return the log-probs of a case, for CPO and ORPO as logits. No formula is
repeated.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "TRANSFORMERS_VERBOSITY": "error"}
sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
import trl_loss
import trl_preference
import trl_steps
import trl_timed
from datasets import Dataset, disable_progress_bars
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_torch import tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer, pack_dataset
from trl.experimental.gkd import GKDTrainer
from trl.rewards import get_soft_overlong_punishment
from trl.trainer import utils as trainer_utils
from trl_made import completions_of, made, scored
from trl_names import FIXED

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

VERSIONS = {name: version(name) for name in ("trl", "transformers", "torch")}
WHOLE_STEP = tuple(name for name in trl_loss.ALGORITHMS if name != "bnpo-trl")  # of which the parts add up
DTYPE: dict[str, tuple[Any, ...]] = {"dtype": ("float32",)}  # rewards and the sampler's log-probs become float32
BOTH: dict[str, tuple[Any, ...]] = {"dtype": ("float32", "float64")}
EPS = (1e-4, float(np.float32(1e-4)), None)
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **trl_steps.CONVENTIONS,
    "policy_loss": trl_loss.CONVENTIONS,
    "policy_loss_in_parts": {**trl_loss.CONVENTIONS, **DTYPE, "algorithm": WHOLE_STEP, "clipped": (False,)},
    "loss_with_options": {"parts": ("equal",), "nan_sampling": ("unrecorded",), **DTYPE},
    "loss_constants": {"algorithm": ("grpo", "dapo", "gspo", "cispo", "sapo", "gmpo", "luspo"), **DTYPE},
    "loss_of_completions": {
        "algorithm": tuple(name for name in trl_loss.ALGORITHMS if name != "cispo"),
        **DTYPE,
    },  # its bound
    "group_advantages": {
        "scale": ("group", "batch", "none"),
        "ddof": (1, None),
        "eps": EPS,
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out"),
        "nan_rewards": ("unscored",),
        **DTYPE,
    },
    "normalise_then_sum": {
        "group_ddof": (1,),
        "group_eps": EPS,
        "batch_ddof": (1,),
        "batch_eps": EPS,
        "nan_rewards": ("unscored",),
        **DTYPE,
    },
    "preference_loss": trl_preference.LOSSES | BOTH,
    "full_kl": BOTH,
    "kto_loss": BOTH,
    "selective_log_softmax": BOTH | {"ids_per_position": ("one", "several")},
    "selective_log_softmax_backward": BOTH | {"ids_per_position": ("one", "several")},
    "loss_from_logits": {
        "algorithm": tuple(name for name in WHOLE_STEP if name != "rloo")
    },  # by GRPOTrainer, one batch
    "pack_sequences": {
        "strategy": ("best-fit-decreasing", "wrapped"),
        "over_long": ("error", "truncate", "split"),  # error: cases without longer sequences
    },
    "importance_weights": {"level": ("token", "seq_sum"), "nan_sampling": ("unrecorded",), **DTYPE},
}
DEPARTURES_DOCUMENTED: dict[str, str] = {}
disable_progress_bars()


def _advantages(kind: Any, config: Any, group_size: int, rewards: Array, weights: Array | None = None) -> Array:
    trainer = made(kind, config(**FIXED, per_device_train_batch_size=group_size, num_generations=group_size))
    advantages = scored(trainer, [[3]] * len(rewards), rewards=rewards, weights=weights)["advantages"]
    return np.asarray(advantages.numpy())


def group_advantages(rewards: Array, group_size: int, **x: Any) -> Answer:
    """Advantages from `_generate_and_score_completions` of the GRPO trainer; leave-one-out of the RLOO trainer."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **x)
    if group_size < 2:
        raise NotImplementedError("TRL's configs refuse groups of one")
    if x["baseline"] == "leave-one-out":
        if x["scale"] != "none":
            raise NotImplementedError("TRL's RLOO divides by no deviation of rewards")
        return {"advantages": _advantages(RLOOTrainer, RLOOConfig, group_size, rewards[:, None])}
    config = partial(GRPOConfig, scale_rewards=x["scale"])
    return {"advantages": _advantages(GRPOTrainer, config, group_size, rewards[:, None])}


def normalise_then_sum(rewards: Array, weights: Array, group_size: int, **x: Any) -> Answer:
    """Advantages with multi_objective_aggregation="normalize_then_sum"."""
    only("normalise_then_sum", CONVENTIONS["normalise_then_sum"], dtype=str(rewards.dtype), **x)
    config = partial(GRPOConfig, multi_objective_aggregation="normalize_then_sum")
    return {"advantages": _advantages(GRPOTrainer, config, group_size, rewards, weights)}


def importance_weights(*, old: Array, sampling: Array, mask: Array | None, lengths: Array | None, **x: Any) -> Answer:
    """Importance-sampling ratios of `_generate_and_score_completions`."""
    only("importance_weights", CONVENTIONS["importance_weights"], dtype=str(old.dtype))
    where = mask_of(old, mask, lengths)
    fields = trl_loss.correction(x["correction"], x["level"], x["c_min"], x["c_max"])
    trainer = made(GRPOTrainer, GRPOConfig(**FIXED, per_device_train_batch_size=2, num_generations=2, **fields))
    logprobs = {"old": grid(old, where), "sampling": grid(sampling, where)}
    weights = scored(trainer, completions_of(where), mask=where, **logprobs)["importance_sampling_ratio"].numpy()
    if x["level"] == "seq_sum":
        return {"weights": weights[:, 0]}
    return {"weights": ungrid(grid(weights[where], where), old, where)}  # of tokens only, since padding holds 1


def full_kl(policy_logprobs: Array, reference_logprobs: Array) -> Answer:
    """`generalized_jsd_loss` of the GKD trainer with beta=1, KL(student ‖ teacher), position by position."""
    width = policy_logprobs.shape[-1]
    pairs = zip(tensor(policy_logprobs).reshape(-1, width), tensor(reference_logprobs).reshape(-1, width), strict=True)
    divergences = [GKDTrainer.generalized_jsd_loss(*pair, beta=1, reduction="sum").numpy() for pair in pairs]
    return {"kl": np.array(divergences, policy_logprobs.dtype).reshape(policy_logprobs.shape[:-1])}


def overlong_penalty(*, lengths: Array, limit: int, buffer: int) -> Answer:
    """The reward function of `get_soft_overlong_punishment`."""
    punish = get_soft_overlong_punishment(limit, buffer)
    return {"penalty": np.array(punish(completion_ids=[[3] * length for length in lengths.tolist()]))}


def selective_log_softmax(*, logits: Array, ids: Array, temperature: float, entropy: bool, **x: Any) -> Answer:
    """`selective_log_softmax`, with the entropy in one pass where a position has one id."""
    absent("selective_log_softmax", ignore_index=x.get("ignore_index"))
    scores, index = tensor(logits), tensor(ids)
    if not entropy:
        return {"logprobs": trainer_utils.selective_log_softmax(scores, index, temperature=temperature).numpy()}
    if index.ndim == scores.ndim:
        raise NotImplementedError("TRL gives the entropy with one id for each position")
    both = trainer_utils.selective_log_softmax_and_entropy(scores, index, temperature=temperature)
    return {"logprobs": both[0].numpy(), "entropy": both[1].numpy()}


def selective_log_softmax_backward(
    *, logits: Array, ids: Array, grad_logprobs: Array, temperature: float, grad_entropy: Array | None, **x: Any
) -> Answer:
    """Autograd's gradient of the same functions."""
    absent("selective_log_softmax", ignore_index=x.get("ignore_index"))
    scores, index = tensor(logits).requires_grad_(), tensor(ids)
    if grad_entropy is None:
        trainer_utils.selective_log_softmax(scores, index, temperature=temperature).backward(tensor(grad_logprobs))
    elif index.ndim == scores.ndim:
        raise NotImplementedError("TRL gives the entropy with one id for each position")
    else:
        both = trainer_utils.selective_log_softmax_and_entropy(scores, index, temperature=temperature)
        torch.autograd.backward(both, (tensor(grad_logprobs), tensor(grad_entropy)))
    return {"gradient": scores.grad.numpy()}


def pack_sequences(lengths: Array, max_length: int, strategy: str, over_long: str, **x: Any) -> Answer:
    """`pack_dataset` in one batch; each token encodes its sequence and its position."""
    only("pack_sequences", CONVENTIONS["pack_sequences"], strategy=strategy, over_long=over_long, **x)
    if over_long == "error" and (lengths > max_length).any():
        raise NotImplementedError("TRL cuts or splits a sequence that is longer than a bin")
    if not lengths.size or not lengths.all():
        raise NotImplementedError("TRL leaves empty sequences out")
    name = "wrapped" if strategy == "wrapped" else "bfd_split" if over_long == "split" else "bfd"
    rows = {
        "index": [[index] * length for index, length in enumerate(lengths.tolist())],
        "place": [list(range(length)) for length in lengths.tolist()],
    }
    packed = pack_dataset(Dataset.from_dict(rows), max_length, name, map_kwargs={"batch_size": None}).to_dict()
    pieces: list[tuple[int, int, int]] = []
    offsets = [0]
    for row, (held, places) in enumerate(zip(packed["index"], packed["place"], strict=True)):
        if name == "wrapped":  # it does not mark the start of a sequence
            starts = [at for at in range(len(held)) if at == 0 or held[at] != held[at - 1]]
        else:
            starts = np.cumsum([0, *packed["seq_lengths"][row]])[:-1].tolist()
        pieces += [(held[at], places[at], end - at) for at, end in pairwise([*starts, len(held)])]
        offsets.append(len(pieces))
    table = np.array(pieces, np.int64).T
    answer = {
        "indices": table[0],
        "offsets": np.array(offsets),
        "efficiency": float(table[2].sum() / (len(packed["index"]) * max_length)),
    }
    return answer | {"starts": table[1], "sizes": table[2]} if over_long == "split" else answer


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    function.__name__: function
    for function in (
        trl_loss.policy_loss,
        trl_loss.policy_loss_in_parts,
        trl_loss.loss_with_options,
        trl_loss.loss_constants,
        trl_loss.loss_of_completions,
        trl_loss.loss_from_logits,
        trl_loss.rewarded_loss,
        full_kl,
        overlong_penalty,
        group_advantages,
        normalise_then_sum,
        importance_weights,
        trl_preference.preference_loss,
        trl_preference.kto_loss,
        selective_log_softmax,
        selective_log_softmax_backward,
        pack_sequences,
        trl_steps.training_step,
        trl_steps.resolve_config,
    )
}


def _trainer_of_step(x: dict[str, Any]) -> Any:
    """Return the trainer of a step in one micro-batch."""
    return made(*trl_loss.settings(1, {**x, "steps": 1}))


TIMED: dict[str, Callable[..., Any]] = {
    "group_advantages": trl_timed.group_advantages,
    "policy_loss": partial(trl_timed.policy_loss, _trainer_of_step),
    "selective_log_softmax": trl_timed.selective_log_softmax,
    "pack_sequences": trl_timed.pack_sequences,
}
