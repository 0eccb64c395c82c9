# ruff: noqa: SLF001  its losses and scores are private
"""The peer mlx-lm-lora: its GRPO objective and advantages, and the losses of its preference trainers.

Its GRPO makes one update per rollout and takes no old log-probs: only on-policy cases are judged. Its preference losses
take sums of token log-probs, which its own functions mask and add up, with a stub for the cross entropy in them.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))
import mlx.core as mx
import mlx_lm_lora_steps
import numpy as np
from mlx_lm_lora.trainer import cpo_trainer, dpo_trainer, grpo_trainer, online_dpo_trainer, orpo_trainer, xpo_trainer
from peer_mlx import FakeModel, array, evaluated, given_logprobs, loss_and_gradient, only_float32, timed_loss
from peer_rows import absent, only
from peer_timed import Timed

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

mx.set_default_device(mx.cpu)
VERSIONS = {name: version(name) for name in ("mlx-lm-lora", "mlx", "mlx-lm")}
VARIANTS = {  # its other trainers, whose losses are their own; its third loss type; its README's recipe for DAPO (METADATA:606)
    "online-dpo": (("preference_loss",), {"trainer": "online"}),
    "xpo": (("preference_loss",), {"trainer": "xpo"}),
    "bnpo": (("policy_loss",), {"algorithm": "grpo", "aggregation": "token-mean"}),
    "dapo-recipe": (("policy_loss",), {"algorithm": "dapo", "aggregation": "row-mean"}),
}
SETTING: dict[str, str] = dict(globals().get("SETTINGS", {}))
TRAINER = SETTING.pop("trainer", "dpo")
LOSS = {"dpo": dpo_trainer.dpo_loss, "online": online_dpo_trainer.online_dpo_loss, "xpo": xpo_trainer.xpo_loss}[TRAINER]
PREFERENCES = ("dpo", "hinge", "ipo", "dpop", "cpo", "orpo") if TRAINER == "dpo" else ("dpo", "hinge", "ipo", "dpop")
SINGLE = {"dtype": ("float32",), "arithmetic": ("float32",)}
GROUP = {"scale": ("group",), "ddof": (0,), "baseline": ("mean",)}  # grpo_trainer.py:311, in float64
KL = {"kl_estimator": ("k3",), "kl_ratio": ("none", None), "kl_clamp": (None,), "dapo_denominator": ("global", None)}
ROWS = {"advantages": ("row",), "ratio": ("on-policy",), "rows": ("mask", "holes"), "weights": (False,)}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    **mlx_lm_lora_steps.CONVENTIONS,
    "group_advantages": {"dtype": ("float32",), **GROUP, "eps": (1e-4, float(np.float32(1e-4))), "eps_mode": ("add",)},
    "policy_loss": {**SINGLE, **KL, **ROWS, "algorithm": ("grpo", "dr_grpo", "gspo")},
    "preference_loss": {**SINGLE, "loss": PREFERENCES, "lengths": ("mean", None), "nll_tokens": ("completion",)},
    "selective_log_softmax": {"dtype": ("float16", "float32"), "ids_per_position": ("one",), "ignore_index": (None,)},
}
CONVENTIONS["policy_loss"] |= {axis: (choice,) for axis, choice in SETTING.items()}


def group_advantages(rewards: Array, group_size: int, **conventions: Any) -> Answer:
    """Advantages of rewards that one reward function returns."""
    only("group_advantages", CONVENTIONS["group_advantages"], dtype=str(rewards.dtype), **conventions)
    prompts = [row // group_size for row in range(len(rewards))]
    texts = [[""] * len(rewards)] * 4
    run = grpo_trainer.calculate_rewards_and_advantages
    advantages, _ = run([lambda **_: rewards.tolist()], *texts, prompts, sorted(set(prompts)))
    return {"advantages": np.array(advantages)}


def policy_loss(*, policy: Array, reference: Array | None, advantages: Array, mask: Array, **x: Any) -> Answer:
    """Its objective of token log-probs; GSPO is its sequence level."""
    return loss_and_gradient(_objective(policy, reference, advantages, mask, x), policy)


def _objective(policy: Array, reference: Array | None, advantages: Array, mask: Array, x: dict[str, Any]) -> Any:
    """Return its objective as a function of the log-probs."""
    only_float32("policy", policy)
    absent("policy_loss", old=x["old"], delta=x.get("delta"), weights=x.get("weights"))
    wide = [array(values) for values in (mask, advantages)]
    fixed = None if reference is None else array(reference)
    constants = x["beta"], x["epsilon_low"], x["epsilon_high"], x["max_length"] or policy.shape[1]
    level = "sequence" if x["algorithm"] == "gspo" else "token"
    kind = "bnpo" if SETTING.get("aggregation") == "token-mean" else {"dr_grpo": "dr_grpo"}.get(x["algorithm"], "grpo")
    return lambda logprobs: grpo_trainer._grpo_objective(  # without a reference, as its grpo_loss calls it
        logprobs, mx.stop_gradient(logprobs) if fixed is None else fixed, *wide, *constants, level, kind
    )[0]


def preference_loss(*, policy: Array, reference: Array | None, mask: Array, loss: str, **x: Any) -> Answer:
    """Losses of rows in pairs; the first column of the DPO, CPO and ORPO masks stands for a prompt."""
    only_float32("policy", policy)
    absent("preference_loss", label_smoothing=x.get("label_smoothing"), margin=x.get("margin"))
    counted = array(np.pad(mask, ((0, 0), (int(TRAINER == "dpo"), 0))).astype(np.float32))
    masks = counted[0::2], counted[1::2]
    if loss == "orpo":
        return loss_and_gradient(lambda logprobs: _orpo(logprobs, mask, masks, x["beta"]), policy)
    if loss != "cpo" and (reference is None or (TRAINER != "dpo" and not mask.any(axis=1).all())):
        raise NotImplementedError("its DPO losses take a reference; rows of its online trainers hold a prompt")
    kind, function = "sigmoid" if loss in {"dpo", "cpo"} else loss, cpo_trainer.cpo_loss if loss == "cpo" else LOSS
    references = () if loss == "cpo" else _scores(array(reference), counted, kind)
    rest = {"beta": x["beta"], "delta": x.get("penalty") or 0.0, "loss_type": kind}
    return loss_and_gradient(lambda lp: function(*_scores(lp, counted, kind), *references, *masks, **rest)[0], policy)


def _scores(logprobs: mx.array, counted: mx.array, kind: str) -> tuple[mx.array, mx.array]:
    """Return its scores of chosen and rejected rows; its online trainers select log-probs (grpo_trainer.py:112, compiled)."""
    if TRAINER == "dpo":
        with given_logprobs():
            tokens = dpo_trainer.get_token_scores(FakeModel(logprobs), mx.zeros(counted.shape, mx.int32), counted)
        scores = dpo_trainer.compute_score(tokens, counted, kind)
    else:
        scores = online_dpo_trainer.compute_score(mx.where(counted > 0, logprobs, 0), counted, kind)
    return scores[0::2], scores[1::2]


def _orpo(logprobs: mx.array, mask: Array, masks: tuple[mx.array, mx.array], beta: float) -> mx.array:
    tokens = mx.zeros((len(mask) // 2, mask.shape[1] + 1), mx.int32)
    with given_logprobs():
        scored = [orpo_trainer.get_logps(FakeModel(logprobs[side::2]), tokens, masks[side]) for side in (0, 1)]
    return orpo_trainer.orpo_loss(*scored[0], *scored[1], *masks, mx.ones(len(mask) // 2), beta)[0]


def selective_log_softmax(logits: Array, ids: Array, *, temperature: float, entropy: bool, **_: Any) -> Answer:
    """Its token log-probs; it has no temperature or entropy."""
    only("log-probs", {"temperature": (1.0,), "entropy": (False,)}, temperature=temperature, entropy=entropy)
    rows = array(logits).reshape(-1, 1, logits.shape[-1])
    logprobs = grpo_trainer._select_token_logps(rows, array(ids).reshape(-1, 1), mx.ones((ids.size, 1), mx.bool_))
    return {"logprobs": np.array(logprobs).reshape(ids.shape)}


JUDGED = (group_advantages, policy_loss, preference_loss, selective_log_softmax)
OPS: dict[str, Callable[..., Answer]] = {op.__name__: op for op in JUDGED} | mlx_lm_lora_steps.OPS


def timed_group_advantages(rewards: Array, group_size: int, **_: Any) -> Timed:
    """Rewards of one reward function, from their list to the advantages."""
    prompts = [row // group_size for row in range(len(rewards))]
    values, texts = rewards.tolist(), [[""] * len(rewards)] * 4
    names = {
        "evaluated": evaluated,
        "calculate_rewards_and_advantages": grpo_trainer.calculate_rewards_and_advantages,
        "functions": [lambda **_: values],
        "texts": texts,
        "prompts": prompts,
        "unique": sorted(set(prompts)),
    }
    return Timed(
        "evaluated(calculate_rewards_and_advantages(functions, *texts, prompts, unique)[0])",
        names,
        lambda result: {"advantages": np.array(result)},
        "calculate_rewards_and_advantages with one reward function that returns the rewards; its statistics are in the time",
    )


def timed_policy_loss(*, policy: Array, reference: Array | None, advantages: Array, mask: Array, **x: Any) -> Timed:
    """Its compiled objective with MLX's gradient."""
    note = "grpo_trainer._grpo_objective under mx.value_and_grad, evaluated; its metrics are in the time"
    return timed_loss(_objective(policy, reference, advantages, mask, x), policy, note)


def timed_selective_log_softmax(logits: Array, ids: Array, **_: Any) -> Timed:
    """Its compiled token log-probs, each row a sequence of one token."""
    names = {
        "evaluated": evaluated,
        "select_token_logps": grpo_trainer._select_token_logps,
        "logits": evaluated(array(logits)[:, None]),
        "ids": evaluated(array(ids)[:, None]),
        "mask": evaluated(mx.ones((ids.size, 1), mx.bool_)),
    }
    return Timed(
        "evaluated(select_token_logps(logits, ids, mask))",
        names,
        lambda result: {"logprobs": np.array(result)[:, 0]},
        "grpo_trainer._select_token_logps",
    )


TIMED: dict[str, Callable[..., Timed]] = {
    "group_advantages": timed_group_advantages,
    "policy_loss": timed_policy_loss,
    "selective_log_softmax": timed_selective_log_softmax,
}
