"""The peer verl: its actor's loss, advantages, KL penalties, rollout corrections and log-probs, by its own functions.

Losses run through `verl.workers.utils.losses.ppo_loss`, what its actor calls for a micro-batch, with the counts of the
whole step that its engine provides. That function slices log-probs out of packed sequences, so a prompt of one token
precedes each row.

One shim: `verl.utils.dataset` is imported without its `__init__`, which needs `datasets` and Pillow to read files; the
losses only need an enumeration from its `dataset_utils`.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
import verl.utils
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_timed import Timed, only_output
from peer_torch import loss_and_gradient, tensor, timed_loss
from tensordict import TensorDict  # installed only in verl's environment

sys.modules["verl.utils.dataset"] = package = ModuleType("verl.utils.dataset")
package.__path__ = [f"{verl.utils.__path__[0]}/dataset"]

from verl.trainer.config import AlgoConfig, RolloutCorrectionConfig
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.utils import tensordict_utils, torch_functional
from verl.workers.config import ActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("verl", "torch", "transformers")}
SETTING: dict[str, Any] = globals().get("SETTINGS", {})
LOSSES = {  # loss_mode and loss_agg_mode by algorithm; docs/definitions.md, "Presets"
    "grpo": ("vanilla", "seq-mean-token-mean"),
    "dapo": ("vanilla", "token-mean"),
    "dr_grpo": ("vanilla", "seq-mean-token-sum-norm"),
    "gspo": ("gspo", "seq-mean-token-mean"),
    "gspo-token": ("gspo", "seq-mean-token-mean"),
    "sapo": ("sapo", "seq-mean-token-mean"),
    "cispo": ("cispo", "token-mean"),
    "gmpo": ("geo_mean", "seq-mean-token-mean"),
    "ppo": ("vanilla", "token-mean"),
    "reinforce": ("gpg", "seq-mean-token-mean"),
    "reinforce++": ("vanilla", "token-mean"),
}
# Of a variant: the algorithm, its choices, and the settings that make them.
CHOICES = {axis: SETTING[axis] for axis in ("algorithm", "ratio_level", "bound", "aggregation") if axis in SETTING}
if CHOICES:
    LOSSES = {CHOICES["algorithm"]: (SETTING["loss_mode"], SETTING["loss_agg_mode"])}
LOSS: dict[str, tuple[Any, ...]] = {
    "algorithm": tuple(LOSSES),
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("relative", None),
    "kl_ratio": ("none", None),
    "kl_clamp": (10.0,),
    **{axis: (choice,) for axis, choice in CHOICES.items()},
}
SCORES: dict[str, tuple[Any, ...]] = {  # half types: its engine calls under autocast, which widens them
    "dtype": ("float32",) if SETTING.get("chunked") else ("float32", "float64"),  # chunks become float32, as documented
    "ids_per_position": ("one",),
    "ignore_index": (None,),
}
WHITENED: dict[str, tuple[Any, ...]] = {}  # masked_whiten over the tokens of the batch, which has one constant
if SETTING.get("estimator"):
    WHITENED = {"scale": ("batch",), "ddof": (1,), "eps": (1e-8,), "eps_mode": ("inside",), "baseline": ("batch",)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS,
    "group_advantages": {  # groupwise.py, group_mean_std: the vectorised ones return float32, as documented
        "dtype": ("float32",) if SETTING.get("vectorized") else ("float32", "float64"),
        "scale": ("group", "none"),
        "ddof": (1, None),
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out"),
        **WHITENED,
    },
    "gae": {
        "rows": ("mask", "all", "lengths", "flat")
    },  # holes keep the trace of the tokens around; its losses mask them
    "token_kl": {"kl_ratio": ("none",), "kl_clamp": (None, 10.0), "reduction": ("none", "sum", "mean")},
    "importance_weights": {"correction": ("tis", "mis"), "level": ("token", "seq_sum")},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}
VARIANTS = {
    "reinforce++": (("group_advantages",), {"estimator": "reinforce_plus_plus"}),
    "rloo": (  # adv_estimator=rloo changes no setting of the loss
        ("policy_loss",),
        {
            "algorithm": "rloo",
            "ratio_level": "token",
            "bound": "clip",
            "aggregation": "token-mean",
            "loss_mode": "vanilla",
            "loss_agg_mode": "token-mean",
        },
    ),
    "gpg-row-sum": (
        ("policy_loss",),
        {
            "algorithm": "rloo",
            "ratio_level": "none",
            "aggregation": "row-sum",
            "loss_mode": "gpg",
            "loss_agg_mode": "seq-mean-token-sum",
        },
    ),
    "bypass-ppo-clip": (
        ("policy_loss",),
        {"algorithm": "dapo", "loss_mode": "bypass_mode", "loss_agg_mode": "token-mean", "loss_type": "ppo_clip"},
    ),
    "bypass-reinforce": (  # REINFORCE weighted by the truncated ratio to the sampler
        ("policy_loss",),
        {"algorithm": "cispo", "loss_mode": "bypass_mode", "loss_agg_mode": "token-mean", "loss_type": "reinforce"},
    ),
    "vectorized": (("group_advantages",), {"vectorized": True}),
    "chunked-entropy": (("selective_log_softmax",), {"chunked": True}),
}
NO_CLIP = 1e9  # clip_ratio_c must be above 1; its ratio is held at exp(20), so this one never acts
ESTIMATORS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """One micro-batch that is the whole step."""
    where = mask_of(policy, mask, lengths)
    result = _loss(grid(policy, where), where, where, x)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, parts: list[int], **x: Any) -> dict[str, Any]:
    """Micro-batches with the counts of the whole step; their losses add up, as its metric aggregation SUM says."""
    mask = mask_of(policy, x.pop("mask"), x.pop("lengths", None))
    ends = np.cumsum(parts)
    results = []
    for start, end in zip(ends - parts, ends, strict=True):
        own = {k: v[start:end] if isinstance(v, np.ndarray) and len(v) == len(mask) else v for k, v in x.items()}
        results.append(_loss(policy[start:end], mask[start:end], mask, own))
    loss = sum(result["loss"] for result in results)
    return {"loss": loss, "gradient": np.concatenate([result["gradient"] for result in results])}


def _loss(policy: Array | None, mask: Array, whole: Array, x: dict[str, Any]) -> dict[str, Any]:
    """Loss and gradient of its actor's ppo_loss."""
    assert policy is not None
    return loss_and_gradient(_ppo_loss(policy, mask, whole, x), policy)


def _ppo_loss(policy: Array, mask: Array, whole: Array, x: dict[str, Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return its actor's ppo_loss of log-probs, the other tensors laid out as its trainer does."""
    only("policy_loss", LOSS, algorithm=x["algorithm"], kl_ratio=x["kl_ratio"])
    absent("policy_loss", row_mask=x.get("row_mask"))
    mode, aggregation = LOSSES[x["algorithm"]]
    if x.get("delta") and mode != "vanilla":
        raise NotImplementedError(f"verl's {mode} has no dual clip")
    low, high, penalty = x["epsilon_low"], x["epsilon_high"], x["beta"] and ESTIMATORS[x["kl_estimator"] or "k3"]
    if x.get("kl_clamp") and penalty != "low_var_kl":
        raise NotImplementedError("verl clamps low_var_kl at 10, and no other estimate")
    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        ppo_micro_batch_size_per_gpu=len(mask),
        clip_ratio_low=1.0 if low is None else low,  # of cispo: no lower bound
        clip_ratio_high=0.2 if high is None else high,
        clip_ratio_c=x.get("delta") or NO_CLIP,
        policy_loss=PolicyLossConfig(loss_mode=mode, rollout_correction=RolloutCorrectionConfig(**_bypass(low, high))),
        loss_agg_mode=aggregation,
        loss_scale_factor=x.get("max_length"),
        tau_pos=x.get("sapo_temperature_positive") or 1.0,
        tau_neg=x.get("sapo_temperature_negative") or 1.05,
        use_kl_loss=bool(x["beta"]),
        kl_loss_coef=x["beta"],
        kl_loss_type=penalty or "low_var_kl",
    )
    rows, width = mask.shape
    old = policy if x["old"] is None else x["old"]  # on-policy its trainer has scored the same tokens before
    batch = {"old_log_probs": grid(old, mask), "advantages": _spread(x["advantages"], mask)}
    if x.get("weights") is not None:
        if mode == "bypass_mode":
            raise NotImplementedError("verl's bypass mode ignores weights, as documented: it makes its own")
        batch["rollout_is_weights"] = _spread(x["weights"], mask)
    if x["beta"]:
        batch["ref_log_prob"] = grid(x["reference"], mask)
    batch |= {"response_mask": mask, "attention_mask": np.ones((rows, width + 1), np.int64)}
    batch |= {"prompts": np.zeros((rows, 1), np.int64), "responses": np.zeros((rows, width), np.int64)}
    data = TensorDict({name: tensor(value) for name, value in batch.items()}, batch_size=rows)
    tokens = float(whole.sum()) if x.get("tokens_in_step") is None else x["tokens_in_step"]
    for name, value in (("dp_size", 1), ("batch_num_tokens", tokens), ("global_batch_size", len(whole))):
        tensordict_utils.assign_non_tensor_data(data, name, value)

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        # Position t holds the log-prob of the token after it; the last one of a row belongs to no token.
        return ppo_loss(config, {"log_probs": torch.nn.functional.pad(logprobs, (0, 1)).flatten()}, data)[0]

    return loss


def _bypass(low: float | None, high: float | None) -> dict[str, Any]:
    """Settings of its bypass mode, where the sampler's log-probs stand for old ones."""
    if SETTING.get("loss_type") != "reinforce":
        return {name: SETTING[name] for name in ("loss_type",) if name in SETTING}
    if low is not None or high is None:
        raise NotImplementedError(
            "verl's bypass mode truncates weights from above, and drops tokens below a lower bound"
        )
    return {"loss_type": "reinforce", "rollout_is": "token", "rollout_is_threshold": 1.0 + high}


def _spread(values: Array, mask: Array) -> Array:
    """Return numbers of tokens as they are, and of rows as (B, T), 0 outside the mask, as verl's estimators return them."""
    wide = grid(values, mask)
    assert wide is not None
    return wide if wide.ndim > 1 else np.where(mask, wide[:, None], wide.dtype.type(0))


def group_advantages(
    rewards: Array, group_size: int, *, scale: str, eps: float | None, baseline: str, **conventions: Any
) -> dict[str, Any]:
    """Advantages of answers of one token, whose reward stands on it."""
    only("group_advantages", CONVENTIONS["group_advantages"], **conventions, scale=scale, baseline=baseline)
    column = tensor(rewards)[:, None]
    mask = torch.ones_like(column)
    if WHITENED:
        config = AlgoConfig(gamma=1.0)
        advantages, _ = core_algos.get_adv_estimator_fn(SETTING["estimator"])(column, mask, config=config)
        return {"advantages": advantages[:, 0].numpy()}
    if baseline == "leave-one-out" and scale != "none":
        raise NotImplementedError("verl's RLOO divides by no deviation")
    name = ("rloo" if baseline == "leave-one-out" else "grpo") + ("_vectorized" if SETTING.get("vectorized") else "")
    options = {} if scale == "none" else {"epsilon": eps}
    if baseline == "mean":
        options["norm_adv_by_std_in_grpo"] = scale == "group"
    index = np.arange(len(rewards)) // group_size
    advantages, _ = core_algos.get_adv_estimator_fn(name)(column, mask, index=index, **options)
    return {"advantages": advantages[:, 0].numpy()}


def gae(rewards: Array, values: Array, *, gamma: float, lam: float, **x: Any) -> dict[str, Any]:
    """Returns minus values, since verl whitens its advantages over the batch."""
    absent("gae", bootstrap=x["bootstrap"], terminal=x["terminal"])
    where = mask_of(rewards, x.get("mask"), x.get("lengths"))
    gain, critic = (tensor(grid(values_, where)) for values_ in (rewards, values))
    _, returns = core_algos.compute_gae_advantage_return(gain, critic, tensor(where.astype(rewards.dtype)), gamma, lam)
    return {"advantages": ungrid((returns - critic).numpy(), rewards, where)}


def token_kl(policy: Array, reference: Array, *, estimator: str, reduction: str, **x: Any) -> dict[str, Any]:
    """Its penalty per token, and its masked sum or mean of a row, as its trainer computes them."""
    if x.get("kl_clamp") and estimator != "k3":
        raise NotImplementedError("verl clamps low_var_kl at 10, and no other estimate")
    where = mask_of(policy, x["mask"], x["lengths"])
    pair = (tensor(grid(logprobs, where)) for logprobs in (policy, reference))
    kl = core_algos.kl_penalty(*pair, ESTIMATORS[estimator])
    if reduction == "none":
        if not where.all():
            raise NotImplementedError("verl's kl_penalty takes no mask")
        return {"kl": kl.numpy()}
    reduce = {"sum": torch_functional.masked_sum, "mean": torch_functional.masked_mean}[reduction]
    return {"kl": reduce(kl, tensor(where), axis=-1).numpy()}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> dict[str, Any]:
    """Weights of its rollout correction: one number truncates (TIS), two drop what is outside (its IcePop)."""
    if (correction == "mis") != (c_min is not None):
        raise NotImplementedError("verl's tis has an upper bound only, its IcePop needs both")
    where = mask_of(old, x.get("mask"), x.get("lengths"))
    if level == "seq_sum" and not where.any(axis=1).all():
        raise NotImplementedError("verl's weights stand on tokens, and a row without any has none")
    pair = (tensor(grid(logprobs, where)) for logprobs in (old, sampling))
    bound = c_max if c_min is None else f"{c_min}_{c_max}"
    options = {"rollout_is": {"token": "token", "seq_sum": "sequence"}[level], "rollout_is_threshold": bound}
    corrected, _, _ = compute_rollout_correction_and_rejection_mask(*pair, tensor(where), **options)
    weights = corrected.batch["rollout_is_weights"].numpy()
    if level == "token":
        return {"weights": ungrid(weights, old, where)}
    return {"weights": weights[np.arange(len(where)), where.argmax(axis=1)]}  # the tokens of a row share one weight


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Log-probs and entropies as its actor computes them without flash-attention."""
    logprobs, entropies = _scores(tensor(logits), tensor(ids), temperature)
    return {"logprobs": logprobs.numpy(), "entropy": entropies.numpy()} if entropy else {"logprobs": logprobs.numpy()}


def selective_log_softmax_backward(
    logits: Array, ids: Array, grad_logprobs: Array, temperature: float, *, grad_entropy: Array | None
) -> dict[str, Any]:
    """Autograd's gradient through the same functions."""
    leaf = tensor(logits).requires_grad_()
    logprobs, entropies = _scores(leaf * 1, tensor(ids), temperature)  # a leaf cannot be divided in place
    outputs, gradients = [logprobs], [tensor(grad_logprobs)]
    if grad_entropy is not None:
        outputs, gradients = [logprobs, entropies], [*gradients, tensor(grad_entropy)]
    return {"gradient": torch.autograd.grad(outputs, leaf, gradients)[0].numpy()}


def _scores(logits: torch.Tensor, ids: torch.Tensor, temperature: float) -> tuple[torch.Tensor, torch.Tensor]:
    scaled = torch_functional.post_process_logits(None, logits, temperature, None, None)
    logprobs = torch_functional.logprobs_from_logits(scaled, ids)
    if not SETTING.get("chunked"):
        return logprobs, torch_functional.entropy_from_logits(scaled)
    rows = scaled.reshape(-1, scaled.shape[-1])
    chunked = torch_functional.entropy_from_logits_with_chunking(rows, chunk_size=3)
    return logprobs, chunked.reshape(scaled.shape[:-1])


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
    "group_advantages": group_advantages,
    "gae": gae,
    "token_kl": token_kl,
    "importance_weights": importance_weights,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}


def timed_group_advantages(rewards: Array, group_size: int, **x: Any) -> Timed:
    """The registered estimator, on answers of one token."""
    name = "grpo_vectorized" if SETTING.get("vectorized") else "grpo"
    column = tensor(rewards)[:, None]
    names = {
        "estimator": core_algos.get_adv_estimator_fn(name),
        "rewards": column,
        "mask": torch.ones_like(column),
        "index": np.arange(len(rewards)) // group_size,
    }
    note = f"get_adv_estimator_fn({name!r}) on answers of one token"
    return Timed(
        f"estimator(rewards, mask, index=index, epsilon={x['eps']})",
        names,
        lambda result: {"advantages": result[0][:, 0].numpy()},
        note,
    )


def timed_token_kl(policy: Array, reference: Array, *, estimator: str, **_: Any) -> Timed:
    """Its penalty per token."""
    names = {"kl_penalty": core_algos.kl_penalty, "policy": tensor(policy), "reference": tensor(reference)}
    note = "its low_var_kl, which clamps at 10" if estimator == "k3" else ""
    return Timed(f'kl_penalty(policy, reference, "{ESTIMATORS[estimator]}")', names, only_output("kl"), note)


def timed_selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool) -> Timed:
    """Its two functions, as its actor calls them without flash-attention."""
    names = {
        "logprobs_from_logits": torch_functional.logprobs_from_logits,
        "entropy_from_logits": torch_functional.entropy_from_logits,
        "logits": tensor(logits).div_(temperature),
        "ids": tensor(ids),
    }
    if entropy:
        statement = "logprobs_from_logits(logits, ids), entropy_from_logits(logits)"
        return Timed(statement, names, lambda result: {"logprobs": result[0].numpy(), "entropy": result[1].numpy()})
    return Timed("logprobs_from_logits(logits, ids)", names, only_output("logprobs"))


def timed_policy_loss(*, policy: Array, mask: Array, **x: Any) -> Timed:
    """Its actor's ppo_loss with autograd's gradient."""
    return timed_loss(
        _ppo_loss(policy, mask, mask, x),
        policy,
        "verl.workers.utils.losses.ppo_loss on padded rows, then torch.autograd.grad by the log-probs; its metrics and its "
        "cutting of log-probs out of packed sequences are in the time",
    )


TIMED: dict[str, Callable[..., Timed]] = {
    "group_advantages": timed_group_advantages,
    "token_kl": timed_token_kl,
    "selective_log_softmax": timed_selective_log_softmax,
    "policy_loss": timed_policy_loss,
}
