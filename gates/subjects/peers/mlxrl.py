"""The peer mlxrl (distribution inductive-mlxrl): its real advantages and losses, through its algorithm objects.

The adapter neither repairs nor repeats a formula. A case with conventions that the peer lacks is unsupported. Its algorithm
objects whose choices are not those of the published algorithm are variants, each judged as the composition that it is.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import mlxrl_steps
import numpy as np
from mlxrl.algo import (
    DAPOAlgorithm,
    DrGRPOAlgorithm,
    GRPOAlgorithm,
    GSPOAlgorithm,
    RLOOAlgorithm,
    approximate_kl,
    filter_zero_advantage_groups,
    sequence_importance_ratio,
    token_importance_ratio,
)
from mlxrl.policy.logprobs import target_logprobs_from_logits
from peer_mlx import evaluated, timed_loss
from peer_timed import Timed

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

EPS = 1e-8  # inside the square root, the default of mlxrl.algo.grpo.group_normalize_rewards
VERSIONS = {name: version(name) for name in ("inductive-mlxrl", "mlx", "mlx-lm")}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "group_advantages": {
        "dtype": ("float32",),
        "scale": ("group", "none"),
        "ddof": (0, None),
        "eps": (EPS, float(np.float32(EPS)), None),
        "eps_mode": ("inside", None),
        "baseline": ("mean", "leave-one-out"),
    },
    "policy_loss": {
        "dtype": ("float32",),
        "algorithm": ("dapo", "gspo"),
        "advantages": ("row",),
        "dapo_denominator": ("global", None),
        "kl_ratio": ("none", None),
        "kl_estimator": ("k3",),
        "rows": ("mask",),
        "weights": (False,),
        "arithmetic": ("float32",),
    },
    "token_kl": {"estimator": ("k3",), "reduction": ("none",), "kl_ratio": ("none",), "arithmetic": ("float32",)},
    "importance_ratio": {"level": ("token", "seq_mean"), "arithmetic": ("float32",)},
    "selective_log_softmax": {"dtype": ("float32",), "ids_per_position": ("one",), "ignore_index": (None,)},
    "keep_groups": {"convention": ("accuracy",)},
    **mlxrl_steps.CONVENTIONS,
}
DEPARTURES_DOCUMENTED: dict[str, str] = {}
# Its other algorithm objects, each with the choices that it has, and the documented parameter sets.
VARIANTS = {
    # mlxrl/algo/grpo.py:17, "Thin unclipped GRPO"; README, Import API: "token-mean policy losses: base GRPO"
    "grpo": (("policy_loss",), {"algorithm": "grpo", "bound": "none", "aggregation": "token-mean"}),
    "dr-grpo": (("policy_loss",), {"algorithm": "dr_grpo", "bound": "none"}),
    "dr-grpo-token-mean": (
        ("policy_loss",),
        {"algorithm": "dr_grpo", "bound": "none", "aggregation": "token-mean", "loss_reduction": "token_mean"},
    ),
    "dr-grpo-without-max-tokens": (
        ("policy_loss",),
        {"algorithm": "dr_grpo", "bound": "none", "aggregation": "width", "max_tokens": None},
    ),
    "dr-grpo-normalized": (("group_advantages",), {"normalize_rewards": True}),
    "rloo": (("policy_loss",), {"algorithm": "rloo", "ratio_level": "none", "aggregation": "token-mean"}),
    "gspo-token-mode": (("policy_loss",), {"algorithm": "gspo", "ratio_level": "token", "aggregation": "token-mean"}),
}

# The judge sends the parameter set of a variant as SETTINGS.
SETTING: dict[str, Any] = dict(globals().get("SETTINGS", {}))
CHOICES = {axis: SETTING.pop(axis) for axis in ("algorithm", "ratio_level", "bound", "aggregation") if axis in SETTING}
CONVENTIONS["policy_loss"] |= {axis: (choice,) for axis, choice in CHOICES.items()}
TOKEN_MODE = CHOICES.get("ratio_level") == "token"  # of GSPO
if SETTING.get("normalize_rewards"):
    CONVENTIONS["group_advantages"] |= {"scale": ("group",), "baseline": ("mean",)}


def group_advantages(
    rewards: Array,
    group_size: int,
    *,
    scale: str = "group",
    ddof: int | None = 0,
    eps: float | None = EPS,
    eps_mode: str | None = "inside",
    baseline: str = "mean",
) -> dict[str, Any]:
    """Advantages of the algorithm object that has the asked-for convention."""
    _only_float32("rewards", rewards)
    algorithm: Any
    if scale == "none":
        algorithm = DrGRPOAlgorithm() if baseline == "mean" else RLOOAlgorithm()
    elif (scale, ddof, eps_mode, baseline) == ("group", 0, "inside", "mean") and np.float32(eps or 0) == np.float32(
        EPS
    ):
        algorithm = DrGRPOAlgorithm(**SETTING) if SETTING else GRPOAlgorithm()
    else:
        raise NotImplementedError(
            f"mlxrl has no advantage with scale {scale!r}, ddof {ddof}, eps {eps} {eps_mode!r}, baseline {baseline!r}; "
            f"it has group, 0, {EPS} inside, mean, or scale none with mean or leave-one-out"
        )
    return {"advantages": np.array(algorithm.compute_advantages(mx.array(rewards), group_size))}


def policy_loss(
    *,
    policy: Array,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    mask: Array | None,
    algorithm: str,
    beta: float = 0.0,
    max_length: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Loss of the peer's algorithm object and its gradient, taken by MLX through the peer's own compute_loss.

    GRPO, Dr. GRPO and RLOO take no clip bounds.
    """
    loss = _loss(
        policy,
        old=old,
        reference=reference,
        advantages=advantages,
        mask=mask,
        algorithm=algorithm,
        beta=beta,
        max_length=max_length,
        **options,
    )
    value, gradient = mx.value_and_grad(loss)(mx.array(policy))
    mx.eval(value, gradient)
    return {"loss": float(value), "gradient": np.array(gradient)}


def _loss(
    policy: Array,
    *,
    old: Array | None,
    reference: Array | None,
    advantages: Array,
    mask: Array | None,
    algorithm: str,
    beta: float,
    max_length: int | None,
    **options: Any,
) -> Callable[[mx.array], mx.array]:
    """Return the loss of the peer's algorithm object as a function of the log-probs."""
    _only_float32("policy", policy)
    if options.get("delta") is not None or (beta and options.get("kl_ratio", "none") != "none"):
        raise NotImplementedError("mlxrl's losses have no two-sided clip (delta) and no KL term times a ratio")
    if mask is None or options.get("weights") is not None or (beta and options.get("kl_estimator", "k3") != "k3"):
        raise NotImplementedError("mlxrl's losses take a mask and no off-policy weights, and their KL is k3")
    if np.ndim(advantages) != 1:
        raise NotImplementedError("mlxrl's losses take one advantage per row")
    if beta and algorithm == "gspo" and not TOKEN_MODE:
        raise NotImplementedError("mlxrl averages GSPO's KL over all tokens of the batch, and no definition does")
    peer = _algorithm(algorithm, max_length, options)
    behaviour = mx.array(policy if old is None else old)
    fixed = None if reference is None else mx.array(reference)
    gains, weights = mx.array(advantages), mx.array(np.asarray(mask, np.float32))  # its own masks are float32

    def loss(logprobs: mx.array) -> mx.array:
        # Without a reference its trainer passes the current log-probs themselves (mlxrl/train/reference.py:25).
        fixed_or_current = logprobs if fixed is None else fixed
        return peer.compute_loss(logprobs, behaviour, fixed_or_current, gains, weights, beta).loss

    return loss


def _algorithm(name: str, max_length: int | None, options: dict[str, Any]) -> Any:
    clip = {"clip_low": options.get("epsilon_low"), "clip_high": options.get("epsilon_high")}
    if name == "dapo":
        return DAPOAlgorithm(**clip)
    if name == "gspo":
        return GSPOAlgorithm(importance="token" if TOKEN_MODE else "sequence", **clip)
    if name == "grpo":
        return GRPOAlgorithm()
    if name == "dr_grpo":
        settings = {"max_tokens": max_length, **SETTING}
        return DrGRPOAlgorithm(**settings)
    if name == "rloo":
        return RLOOAlgorithm()
    raise NotImplementedError(f"{name} of mlxrl is not judged here; grpo, dapo, dr_grpo, gspo and rloo are")


def _only_float32(name: str, array: Array) -> None:
    dtype = np.asarray(array).dtype
    if dtype != np.float32:
        raise NotImplementedError(f"mlxrl computes in float32; `{name}` has dtype {dtype}")


def token_kl(policy: Array, reference: Array, *, mask: Array | None, lengths: Array | None, **_: Any) -> dict[str, Any]:
    """Its KL of each token, without a mask."""
    _only_float32("policy", policy)
    if mask is not None or (lengths is not None and policy.ndim > 1):
        raise NotImplementedError("approximate_kl of mlxrl takes no mask")
    return {"kl": np.array(approximate_kl(mx.array(policy), mx.array(reference)))}


def importance_ratio(
    policy: Array, old: Array, *, level: str, mask: Array | None, lengths: Array | None
) -> dict[str, Any]:
    """Its ratios: per token without a mask, per sequence with one."""
    _only_float32("policy", policy)
    lp, old_lp = mx.array(policy), mx.array(old)
    if level == "token":
        if mask is not None or (lengths is not None and policy.ndim > 1):
            raise NotImplementedError("token_importance_ratio of mlxrl takes no mask")
        return {"ratio": np.array(token_importance_ratio(lp, old_lp))}
    if mask is None:
        raise NotImplementedError("sequence_importance_ratio of mlxrl takes a mask")
    return {"ratio": np.array(sequence_importance_ratio(lp, old_lp, mx.array(mask.astype(np.float32))))}


def selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool, **_: Any) -> dict[str, Any]:
    """Its log-probs of the tokens; it has no temperature, entropy or ignored ids."""
    if temperature != 1.0 or entropy:
        raise NotImplementedError("mlxrl scores at temperature 1, without an entropy")
    return {"logprobs": np.array(target_logprobs_from_logits(mx.array(logits), mx.array(ids)))}


@dataclass
class _Batch:
    """The fields that its filter reads, and one that records the rows it kept."""

    rewards: Any
    advantages: Any
    completion_token_ids: tuple[int, ...]
    prompt_token_ids: tuple[int, ...]
    old_policy_logprobs: Any
    reference_logprobs: Any
    mask: Any


def keep_groups(*, rewards: Array, weights: Array, group_size: int, convention: str, accuracy: int) -> dict[str, Any]:
    """The rows that its dynamic sampling keeps."""
    del weights, convention
    scores, rows = mx.array(rewards[:, accuracy].astype(np.float32)), tuple(range(len(rewards)))
    nothing = mx.zeros(len(rows))
    batch = _Batch(scores, GRPOAlgorithm().compute_advantages(scores, group_size), rows, rows, *[nothing] * 3)
    kept = filter_zero_advantage_groups(batch, group_size).completion_token_ids
    return {"keep": np.isin(np.arange(0, len(rows), group_size), kept)}


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "group_advantages": group_advantages,
    "policy_loss": policy_loss,
    "token_kl": token_kl,
    "importance_ratio": importance_ratio,
    "keep_groups": keep_groups,
    "selective_log_softmax": selective_log_softmax,
    **mlxrl_steps.OPS,
}


def timed_group_advantages(rewards: Array, group_size: int, **_: Any) -> Timed:
    """Advantages of its GRPO."""
    names = {"evaluated": evaluated, "algorithm": GRPOAlgorithm(), "rewards": evaluated(mx.array(rewards))}
    statement = f"evaluated(algorithm.compute_advantages(rewards, {group_size}))"
    return Timed(
        statement, names, lambda result: {"advantages": np.array(result)}, "GRPOAlgorithm().compute_advantages"
    )


def timed_token_kl(policy: Array, reference: Array, **_: Any) -> Timed:
    """Its KL of each token."""
    arrays = {"policy": evaluated(mx.array(policy)), "reference": evaluated(mx.array(reference))}
    names = {"evaluated": evaluated, "approximate_kl": approximate_kl, **arrays}
    return Timed("evaluated(approximate_kl(policy, reference))", names, lambda result: {"kl": np.array(result)})


def timed_selective_log_softmax(logits: Array, ids: Array, **_: Any) -> Timed:
    """Its log-probs of the tokens."""
    names = {
        "evaluated": evaluated,
        "target_logprobs_from_logits": target_logprobs_from_logits,
        "logits": evaluated(mx.array(logits)),
        "ids": evaluated(mx.array(ids)),
    }
    statement = "evaluated(target_logprobs_from_logits(logits, ids))"
    return Timed(statement, names, lambda result: {"logprobs": np.array(result)})


def timed_policy_loss(
    *, policy: Array, algorithm: str, beta: float = 0.0, max_length: int | None = None, **x: Any
) -> Timed:
    """The algorithm object's loss with MLX's gradient."""
    note = "compute_loss of its algorithm object under mx.value_and_grad, evaluated; its metrics are lazy and not in the time"
    return timed_loss(_loss(policy, algorithm=algorithm, beta=beta, max_length=max_length, **x), policy, note)


TIMED: dict[str, Callable[..., Timed]] = {
    "group_advantages": timed_group_advantages,
    "token_kl": timed_token_kl,
    "selective_log_softmax": timed_selective_log_softmax,
    "policy_loss": timed_policy_loss,
}
