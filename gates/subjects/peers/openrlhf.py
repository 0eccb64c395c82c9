"""The peer openrlhf: its actor's training step, its experience maker's advantages, its KL, DPO and IPO losses and log-probs.

Losses run through `ActorPPOTrainer.training_step`, from an experience to the loss that it hands to DeepSpeed, with the counts
of the whole step that its loop provides; the actor returns the log-probs of the case.

Shim: empty modules stand for deepspeed, flash_attn and vllm, which are not installed. Its trainers import them, and nothing
that is judged calls into them; without flash-attn log-probs take its path for a CPU.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace as Names
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parent / "shared"))

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, only, ungrid
from peer_shim import stand_in
from peer_torch import loss_and_gradient, tensor

SHIM = stand_in(
    *("deepspeed", "deepspeed.runtime", "deepspeed.runtime.zero", "deepspeed.runtime.zero.partition_parameters"),
    *("flash_attn", "flash_attn.bert_padding", "flash_attn.utils", "flash_attn.utils.distributed"),
    *("vllm", "vllm.inputs", "vllm.utils"),
)

from openrlhf.models.loss import DPOLoss, PolicyLoss
from openrlhf.models.utils import compute_approx_kl, compute_entropy, log_probs_from_logits, masked_mean
from openrlhf.trainer.dpo_trainer import DPOTrainer
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker
from openrlhf.trainer.ppo_utils.length_penalty import apply_overlong_penalty
from openrlhf.trainer.ray.ppo_actor import ActorPPOTrainer
from openrlhf.utils.loss_utils import iter_grad_accum_global_norm

if TYPE_CHECKING:
    from collections.abc import Callable

    Array = np.ndarray[Any, Any]

VERSIONS = {name: version(name) for name in ("openrlhf", "torch", "transformers")} | SHIM
LOSSES = {  # --actor.policy_loss_type and --actor.loss_agg_mode by algorithm
    "dapo": ("ppo", "token-mean"),
    "ppo": ("ppo", "token-mean"),
    "grpo": ("ppo", "seq-mean-token-mean"),
    "gspo": ("gspo", "token-mean"),  # PolicyLoss: GSPO takes the mean of rows, whatever loss_agg_mode says
}
LOSS: dict[str, tuple[Any, ...]] = {
    "algorithm": tuple(LOSSES),
    "advantages": ("row", "token"),
    "dapo_denominator": ("global", None),
    "kl_ratio": ("none", None),
    "kl_clamp": (10.0,),
    "kl_aggregation": ("token-mean",),  # training_step aggregates the KL without loss_agg_mode
    "weights": (False,),
}
SCORES: dict[str, tuple[Any, ...]] = {  # Actor.forward: logits become float32 before they are scored
    "dtype": ("float32", "float64"),
    "ids_per_position": ("one",),
    "ignore_index": (None,),
}
ESTIMATORS = {  # --algo.advantage.estimator by scale and baseline
    ("none", "leave-one-out"): "rloo",
    ("none", "mean"): "dr_grpo",
    ("none", "batch"): "flash_reinforce",
    ("group", "mean"): "group_norm",
}
UNCLIPPED = (-1e9, 1e9)  # --reward.clip_range, whose default clips advantages at 10
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "policy_loss": LOSS,
    "policy_loss_in_parts": LOSS | {"advantages": ("row",)},
    "group_advantages": {
        "scale": ("group", "none"),
        "ddof": (1, None),
        "eps": (1e-9, None),
        "eps_mode": ("add", None),
        "baseline": ("mean", "leave-one-out", "batch"),
    },
    "gae": {
        "rows": ("mask", "all", "lengths", "flat")
    },  # holes keep the trace of the tokens around; its losses mask them
    "importance_weights": {"correction": ("tis", "mis"), "level": ("token",)},
    "token_kl": {"kl_ratio": ("none",), "kl_clamp": (None, 10.0), "reduction": ("none", "mean")},
    "preference_loss": {"loss": ("dpo", "ipo"), "reference_free": (False,)},
    "selective_log_softmax": SCORES,
    "selective_log_softmax_backward": SCORES,
}


def policy_loss(*, policy: Array, mask: Array | None = None, lengths: Array | None = None, **x: Any) -> dict[str, Any]:
    """One micro-batch that is the whole step."""
    where = mask_of(policy, mask, lengths)
    wide = grid(policy, where)
    assert wide is not None
    result = _step(wide, where, [len(where)], x)
    return {"loss": result["loss"], "gradient": ungrid(result["gradient"], policy, where)}


def policy_loss_in_parts(*, policy: Array, mask: Array, parts: list[int], **x: Any) -> dict[str, Any]:
    """Micro-batches of one optimizer step, as its loop provides them with their counts."""
    return _step(policy, mask, parts, x)


def _step(policy: Array, mask: Array, parts: list[int], x: dict[str, Any]) -> dict[str, Any]:
    """Sum and gradient of the losses that `training_step` hands to DeepSpeed, which divides each by their number."""
    only("policy_loss", LOSS, algorithm=x["algorithm"], kl_ratio=x["kl_ratio"])
    absent("policy_loss", row_mask=x.get("row_mask"), weights=x.get("weights"))
    trainer = _trainer(x)
    rows = {"action_log_probs": policy if x["old"] is None else grid(x["old"], mask), "action_mask": mask}
    rows |= {"advantages": grid(x["advantages"], mask), "base_action_log_probs": grid(x["reference"], mask)}
    ends = np.cumsum(parts)
    places = [slice(end - size, end) for size, end in zip(parts, ends, strict=True)]
    made = [Experience(**{k: None if v is None else _wide(v)[at] for k, v in rows.items()}) for at in places]

    def total(logprobs: torch.Tensor) -> torch.Tensor:
        losses: list[torch.Tensor] = []
        trainer.strategy.backward = lambda loss, *_: losses.append(loss / len(parts))
        counted = iter_grad_accum_global_norm(made, trainer.strategy, len(parts), lambda e: e.action_mask)
        for step, ((experience, counts), at) in enumerate(zip(counted, places, strict=True)):
            own = logprobs[at]
            trainer.actor = _Actor(own)
            trainer.training_step(experience, x["beta"], step, counts)
        return torch.stack(losses).sum()

    return loss_and_gradient(total, policy)


def _wide(values: Array) -> torch.Tensor:
    """Return numbers of rows as (B, 1), as its advantages of a row are alike on all tokens."""
    return tensor(values if values.ndim > 1 else values[:, None])


class _Actor:
    """An actor that returns given log-probs."""

    def __init__(self, logprobs: torch.Tensor) -> None:
        self.logprobs = logprobs

    def train(self) -> None:
        """Do nothing: it has no dropout."""

    def __call__(self, *_: Any, **__: Any) -> tuple[torch.Tensor, None]:
        """Return the log-probs, and no other output."""
        return self.logprobs, None


def _trainer(x: dict[str, Any]) -> Any:
    """Return an actor's trainer without model, optimizer and engines, as `__init__` sets what a step reads."""
    kind, aggregation = LOSSES[x["algorithm"]]
    if x["beta"] and x.get("kl_clamp") is None:
        raise NotImplementedError("openrlhf clamps every estimate of the KL at 10")
    trainer = ActorPPOTrainer.__new__(ActorPPOTrainer)
    kl = Names(use_loss=bool(x["beta"]), init_coef=x["beta"], estimator=x["kl_estimator"], unbiased_gradient=False)
    trainer.args = Names(
        train=Names(dynamic_batch_enable=False), actor=Names(entropy_coef=None, aux_loss_coef=0), algo=Names(kl=kl)
    )
    trainer.strategy = Names(ring_attn_group=None, optimizer_step=lambda *_, **__: None, get_grad_norm=lambda _: 0.0)
    trainer.replay_buffer, trainer.aux_loss, trainer.ema_model, trainer.actor_optim = None, False, None, None
    trainer.actor_scheduler = Names(get_last_lr=lambda: [0.0])
    trainer.actor_loss_fn = PolicyLoss(
        clip_eps_low=x["epsilon_low"],
        clip_eps_high=x["epsilon_high"],
        dual_clip=x.get("delta"),
        token_level_loss=aggregation == "token-mean",
        policy_loss_type=kind,
    )
    return trainer


def group_advantages(
    rewards: Array, group_size: int, *, scale: str, baseline: str, **conventions: Any
) -> dict[str, Any]:
    """Advantages of answers of one token, by its experience maker."""
    only("group_advantages", CONVENTIONS["group_advantages"], scale=scale, baseline=baseline, **conventions)
    if (scale, baseline) not in ESTIMATORS:
        raise NotImplementedError(f"openrlhf has no estimator with baseline {baseline} and scale {scale}")
    maker, column = _maker(ESTIMATORS[scale, baseline], group_size), np.ones((len(rewards), 1))
    made = Experience(
        rewards=tensor(rewards), action_mask=tensor(column), kl=tensor(0 * column), index=[*range(len(rewards))]
    )
    (made,) = maker.compute_advantages_and_returns([made])
    return {"advantages": made.advantages[:, 0].numpy()}


def _maker(estimator: str, group_size: int) -> Any:
    """Return an experience maker without a KL in the reward."""
    maker = RemoteExperienceMaker.__new__(RemoteExperienceMaker)
    advantage = Names(estimator=estimator, gamma=1.0, lambd=1.0, no_std_norm=False)
    maker.strategy = Names(
        args=Names(
            algo=Names(advantage=advantage),
            rollout=Names(n_samples_per_prompt=group_size),
            reward=Names(clip_range=UNCLIPPED),
        )
    )
    maker.advantage_estimator, maker.kl_ctl = estimator, Names(value=0.0)
    return maker


def gae(rewards: Array, values: Array, *, gamma: float, lam: float, **x: Any) -> dict[str, Any]:
    """Its advantages before they are whitened over the batch."""
    absent("gae", bootstrap=x["bootstrap"], terminal=x["terminal"])
    where = mask_of(rewards, x.get("mask"), x.get("lengths"))
    gain, critic = (tensor(grid(values_, where)) for values_ in (rewards, values))
    maker = _maker("gae", 1)
    advantages, _ = maker.get_advantages_and_returns(critic, gain, tensor(where.astype(rewards.dtype)), gamma, lam)
    return {"advantages": ungrid(advantages.numpy(), rewards, where)}


def token_kl(policy: Array, reference: Array, *, estimator: str, reduction: str, **x: Any) -> dict[str, Any]:
    """Its estimate per token, and its masked mean of a row, as its experience maker computes them."""
    where = mask_of(policy, x["mask"], x["lengths"])
    kl = compute_approx_kl(*(tensor(grid(values, where)) for values in (policy, reference)), kl_estimator=estimator)
    if reduction == "mean":
        return {"kl": masked_mean(kl, tensor(where), dim=-1).numpy()}
    if not where.all():
        raise NotImplementedError("openrlhf's compute_approx_kl takes no mask")
    return {"kl": ungrid(kl.numpy(), policy, where)}


def importance_weights(
    old: Array, sampling: Array, *, correction: str, level: str, c_min: float | None, c_max: float, **x: Any
) -> dict[str, Any]:
    """The slope of each token's loss at ratio 1 and advantage -1, which is its weight."""
    only("importance_weights", CONVENTIONS["importance_weights"], correction=correction, level=level)
    where, mode = mask_of(old, x.get("mask"), x.get("lengths")), {"tis": "clip", "mis": "mask"}[correction]
    wide, sampled = grid(old, where), grid(sampling, where)
    assert wide is not None
    function = PolicyLoss(
        is_correction_level=level, is_correction_mode=mode, is_correction_threshold=(c_min or 0.0, c_max)
    )
    rows = {
        "old_log_probs": wide,
        "advantages": -np.ones_like(wide),
        "action_mask": where,
        "rollout_log_probs": sampled,
    }
    batch = {name: tensor(values) for name, values in rows.items()}
    weights = loss_and_gradient(lambda logprobs: function(logprobs, **batch, batch_num_tokens=1.0)[0], wide)["gradient"]
    return {"weights": ungrid(weights, old, where)}


def preference_loss(*, policy: Array, reference: Array, mask: Array, loss: str, **x: Any) -> dict[str, Any]:
    """Its DPO loss of the sums that its trainer makes; prompts and padding before them count as its prompt."""
    if x.get("lengths") == "mean":
        raise NotImplementedError("openrlhf's IPO takes sums")
    slots = np.arange(mask.shape[1])
    attended = np.where(mask, slots + 1, 0).max(axis=1)[:, None] > slots
    attended = tensor(np.pad(attended, ((0, 0), (1, 0)), constant_values=True))  # log-probs begin with the second token
    prompts = (np.where(mask.any(axis=1), mask.argmax(axis=1), mask.shape[1]) + 1).tolist()
    trainer = DPOTrainer.__new__(DPOTrainer)

    def pair(logprobs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        sums, _ = trainer._get_batch_logps(logprobs, attended, prompts)  # noqa: SLF001  the step that its forward takes
        return sums[0::2], sums[1::2]

    function = DPOLoss(x["beta"], label_smoothing=x.get("label_smoothing") or 0.0, ipo=loss == "ipo")
    return loss_and_gradient(lambda logprobs: function(*pair(logprobs), *pair(tensor(reference)))[0], policy)


def overlong_penalty(lengths: Array, limit: int, buffer: int) -> dict[str, Any]:
    """What it adds to rewards of 0."""
    made = Names(response_length=tensor(lengths), rewards=torch.zeros(len(lengths), dtype=torch.float64))
    apply_overlong_penalty([made], limit, buffer)
    return {"penalty": made.rewards.numpy()}


def selective_log_softmax(logits: Array, ids: Array, temperature: float, *, entropy: bool) -> dict[str, Any]:
    """Log-probs and entropies of logits that are divided by the temperature, as its actor computes them."""
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
    logprobs = log_probs_from_logits(logits, ids, temperature)  # divides the logits in place
    return logprobs, compute_entropy(logits)


OPS: dict[str, Callable[..., dict[str, Any]]] = {
    "policy_loss": policy_loss,
    "policy_loss_in_parts": policy_loss_in_parts,
    "group_advantages": group_advantages,
    "gae": gae,
    "token_kl": token_kl,
    "importance_weights": importance_weights,
    "preference_loss": preference_loss,
    "overlong_penalty": overlong_penalty,
    "selective_log_softmax": selective_log_softmax,
    "selective_log_softmax_backward": selective_log_softmax_backward,
}
