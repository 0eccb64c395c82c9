# ruff: noqa: SLF001  the losses of trainers are private
"""The losses of TRL's GRPO, RLOO and GMPO trainers, from log-probs, rewards or logits.

A mask that is not a prefix of its row is passed as TRL's tool mask.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from peer_rows import absent, grid, mask_of, micro_batches, only, ungrid
from peer_torch import loss_and_gradient, tensor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer
from trl.trainer import utils as trainer_utils
from trl_made import completions_of, made, scored
from trl_names import FIXED, LOSSES, MODES, SHAPES

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]
    Answer = dict[str, Any]

ALGORITHMS = ("grpo", "dapo", "bnpo-trl", "dr_grpo", "gspo", "rloo", "cispo", "sapo", "gmpo", "luspo", "vespo")
LEVELS = ("token", "sequence")  # of the ratio that multiplies the KL
FIELDS = {  # fields of the configs by inputs of a case
    "epsilon": "epsilon_low",
    "epsilon_high": "epsilon_high",
    "steps_per_generation": "steps",
    **SHAPES,
}
CONVENTIONS: dict[str, tuple[Any, ...]] = {
    "dtype": ("float32", "float64"),
    "algorithm": ALGORITHMS,
    "clipped": (True, False),  # RLOO's ratio; epsilon=inf
    "dapo_denominator": ("global", "trl", None),
    "cispo_bound": ("absolute", None),
    "kl_estimator": ("k3", None),
    "kl_clamp": (None,),
    "parts": ("equal",),  # equal micro-batches: per_device_train_batch_size
}
NAMES = {"old_per_token_logps": "old", "ref_per_token_logps": "reference"}


def settings(parts: int, x: dict[str, Any]) -> Any:
    """Return the trainer class and the config of a case."""
    name = x["algorithm"]
    options: dict[str, Any] = {
        "per_device_train_batch_size": x.get("generations", 2),
        "num_generations": x.get("generations", 2),
        "gradient_accumulation_steps": parts,
        "mask_truncated_completions": x.get("mask_truncated", False),
    }
    for to, key in FIELDS.items():
        if x.get(key) is not None:
            options[to] = x[key]
    if name == "rloo":
        options |= {"beta": x["beta"], "epsilon": options.get("epsilon", float("inf"))}
        return RLOOTrainer, RLOOConfig(**FIXED, **options)
    options |= {
        "beta": x["beta"],
        "delta": x.get("delta"),
        "use_bias_correction_kl": x.get("kl_ratio") in LEVELS,
        "num_iterations": 2,  # old log-probs are computed
        "top_entropy_quantile": x.get("entropy_share", 1.0),
        "entropy_coef": x.get("entropy_bonus", 0.0),
        **correction(x.get("correction"), x.get("correction_level"), x.get("correction_low"), x.get("correction_high")),
    }
    if name == "gmpo":
        return GMPOTrainer, GMPOConfig(**FIXED, **options)
    kind, level = LOSSES[name]
    return GRPOTrainer, GRPOConfig(**FIXED, **options, loss_type=kind, importance_sampling_level=level)


def correction(kind: str | None, level: str | None, low: float | None, high: float | None) -> dict[str, Any]:
    """Return the config's fields of an off-policy correction."""
    if kind is None:
        return {}
    bounds = {"vllm_importance_sampling_clip_min": low, "vllm_importance_sampling_clip_max": high}
    return {"vllm_importance_sampling_mode": MODES[kind, str(level)], **bounds}


def _refuse(x: dict[str, Any]) -> None:
    """Refuse inputs for which the trainers have no setting."""
    name = x["algorithm"]
    choices = ("algorithm", "dapo_denominator", "cispo_bound", "kl_estimator")
    only("policy_loss", CONVENTIONS, **{name: x[name] for name in choices if name in x})
    absent("policy_loss", kl_clamp=x.get("kl_clamp"), row_mask=x.get("row_mask"))
    level = "none" if name == "gmpo" else "token" if name == "rloo" else LOSSES[name][1]
    if x["beta"] and x.get("kl_ratio") not in ("none", level):
        raise NotImplementedError(f"the KL of TRL's {name} is multiplied by the {level} ratio of its loss, or by none")
    if name in ("rloo", "gmpo") and (np.ndim(x["advantages"]) != 1 or x.get("weights") is not None):
        raise NotImplementedError(f"TRL's {name} takes one advantage per row, and no importance weights in the loss")
    if name == "vespo" and x.get("weights") is not None:
        raise NotImplementedError(
            "TRL's VESPO takes importance weights into its ratio, and not as a factor of the loss"
        )


def _run(trainer: Any, batch: dict[str, torch.Tensor], parts: list[int], policy: torch.Tensor, entropy: Any) -> Any:
    """Sum `_compute_loss` over micro-batches, each scaled for gradient accumulation as trainer and Trainer do."""
    total = torch.zeros((), dtype=policy.dtype)
    for rows, part in micro_batches(batch, parts):
        answer = (policy[rows], entropy[rows], None)
        trainer._get_per_token_logps_and_entropies = lambda *_, answer=answer, **__: answer
        # transformers.Trainer divides the losses of a trainer that does not scale them itself.
        total = total + trainer._compute_loss(None, part) / (len(parts) if isinstance(trainer, RLOOTrainer) else 1)
    return total


def policy_loss(*, policy: Array, **x: Any) -> Answer:
    """Loss and gradient of one micro-batch, or of several for bnpo, which averages over each."""
    rows = len(mask_of(policy, x["mask"], x["lengths"]))
    return policy_loss_in_parts(policy=policy, parts=x.get("micro_batches") or [rows], **x)


def policy_loss_in_parts(*, policy: Array, parts: list[int], **x: Any) -> Answer:
    """Sum of the losses of micro-batches and its gradient."""
    _refuse(x)
    if x["algorithm"] == "sapo" and policy.dtype == np.float64:
        raise NotImplementedError("the temperatures of TRL's SAPO are float32 (grpo_trainer.py:3122)")
    share = 2 if x.get("dapo_denominator") == "trl" else 1  # optimizer steps of a generation batch
    mask = mask_of(policy, x["mask"], x["lengths"])
    if x["algorithm"] == "rloo":  # its old log-probs are scored by group; the whole batch is one
        if len(mask) < 2:
            raise NotImplementedError("TRL's configs refuse groups of one")
        x["generations"] = len(mask)
    kind, config = settings(len(parts), {**x, "steps": share * len(parts)})
    weights: Any = x.get("weights")
    tokens = share * x["tokens_in_step"] if share > 1 else mask.sum()
    values = {
        "advantages": grid(x["advantages"], mask),
        "old_per_token_logps": grid(x["old"], mask),
        "ref_per_token_logps": grid(x["reference"], mask) if x["beta"] else None,
        "importance_sampling_ratio": weights[:, None] if np.ndim(weights) == 1 else grid(weights, mask),
        "num_items_in_batch": np.array(float(tokens)),
    }
    batch = {name: tensor(value) for name, value in values.items() if value is not None} | _ids(mask)
    wide = grid(policy, mask)
    trainer = made(kind, config, use_vllm=weights is not None)
    if kind is RLOOTrainer:
        lengths = mask.sum(axis=1)
        if not np.array_equal(mask, np.arange(mask.shape[1]) < lengths[:, None]):
            raise NotImplementedError("TRL's RLOO has no tool mask: completions have no holes")
        old = wide if x["old"] is None else grid(x["old"], mask)
        rows = scored(trainer, [[3] * length for length in lengths], old=old[:, : max(lengths)])
        batch["old_logps"] = rows["old_logps"]
    answer = loss_and_gradient(lambda now: _run(trainer, batch, parts, now, torch.zeros_like(now)), wide)
    return {**answer, "gradient": ungrid(answer["gradient"], policy, mask)}


def _ids(mask: Array) -> dict[str, torch.Tensor]:
    """Return prompts of one token, completions, and their mask."""
    counted = torch.from_numpy(mask.astype(np.int64))
    ones, zeros = torch.ones((len(mask), 1), dtype=torch.long), torch.zeros_like(counted)
    return {"prompt_ids": ones, "prompt_mask": ones, "completion_ids": zeros, "completion_mask": counted}


def _step(leaves: dict[str, torch.Tensor], completions: list[list[int]], **x: Any) -> torch.Tensor:
    """Return the loss of scored completions, with the weights and masks that the trainer computes."""
    kind, config = settings(len(x["parts"]), x)
    trainer = made(kind, config)
    inputs = {**x, **leaves}
    sampling = x["sampling"] if x.get("correction") else None
    old = leaves["policy"] if x["old"] is None else inputs["old"]
    batch = scored(trainer, completions, mask=x["mask"], sampling=sampling, old=old, reference=inputs["reference"])
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    if x["old"] is None and sampling is None:  # with weights the trainer always has them
        batch.pop("old_per_token_logps")
    batch["advantages"] = tensor(x["advantages"])
    entropy = leaves.get("entropy", torch.zeros_like(leaves["policy"]))
    loss = _run(trainer, batch, x["parts"], leaves["policy"], entropy)
    loss.backward()
    return loss.detach()


def _gradient(leaf: torch.Tensor) -> Array:
    return (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad).numpy()


def _leaves(x: dict[str, Any], *names: str) -> dict[str, torch.Tensor]:
    return {name: tensor(x[name]).requires_grad_() for name in names if x[name] is not None}


def loss_with_options(**x: Any) -> Answer:
    """Importance weights, the top-entropy mask and the entropy bonus, from `_generate_and_score_completions` on."""
    if len(set(x["parts"])) > 1:
        raise NotImplementedError("all micro-batches of TRL's trainer have as many rows")
    low, high = {"grpo": (0.2, 0.2), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}[x["algorithm"]]
    leaves = _leaves(x, "policy", "entropy")
    loss = _step(leaves, completions_of(x["mask"]), **{**x, "epsilon_low": low, "epsilon_high": high})
    return {
        "loss": float(loss),
        "gradient": _gradient(leaves["policy"]),
        "entropy_gradient": _gradient(leaves["entropy"]),
    }


def loss_constants(**x: Any) -> Answer:
    """Gradients by all log-probs that the trainer receives as tensors."""
    _refuse(x)
    leaves = _leaves(x, "policy", "old", "reference")
    low, high = {"gspo": (3e-4, 4e-4), "cispo": (0.2, 5.0)}.get(x["algorithm"], (0.2, 0.28))
    more = {"epsilon_low": low, "epsilon_high": high, "parts": [len(x["mask"])]}
    loss = _step(leaves, completions_of(x["mask"]), **{**x, **more})
    answer = {f"{name}_gradient": _gradient(leaf) for name, leaf in leaves.items() if name != "policy"}
    nothing = np.zeros(x["policy"].shape, np.float32)
    return {
        "loss": float(loss),
        "gradient": _gradient(leaves["policy"]),
        **{f"{name}_gradient": nothing for name in ("old", "sampling")},
        **answer,
    }


def loss_of_completions(*, lengths: Array, ended: Array, micro_batch_rows: int, **x: Any) -> Answer:
    """Completions with and without an EOS, masked by the trainer, then `_compute_loss` on micro-batches."""
    _refuse(x)
    rows = len(lengths)
    if rows % micro_batch_rows:
        raise NotImplementedError("all micro-batches of TRL's trainer have as many rows")
    width = max(lengths)
    ids = [[3] * (length - 1) + [2 if end else 3] for length, end in zip(lengths, ended, strict=True)]
    parts = [micro_batch_rows] * (rows // micro_batch_rows)
    cut = {name: x[name][:, :width] for name in ("policy", "old", "reference") if x[name] is not None}
    leaves = _leaves(cut, "policy")
    loss = _step(leaves, ids, **{**x, "reference": None, **cut, "mask": None, "parts": parts})
    gradient = np.zeros(x["policy"].shape, np.float32)
    gradient[:, :width] = _gradient(leaves["policy"])
    return {"loss": float(loss), "gradient": gradient}


def rewarded_loss(*, policy: Array, mask: Array, rewards: Array, group_size: int, beta: float, **x: Any) -> Answer:
    """RLOO from the rewards: the KL is subtracted from them, then leave-one-out."""
    lengths = mask.sum(axis=1)
    x |= {"algorithm": "rloo", "generations": group_size, "beta": beta, "epsilon_low": None}
    kind, config = settings(1, x)
    trainer = made(kind, config)
    logprobs = {name: x[name][:, : max(lengths)] for name in ("old", "reference")}
    batch = scored(trainer, [[3] * length for length in lengths], rewards=rewards[:, None], **logprobs)
    batch = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}

    def loss(now: torch.Tensor) -> torch.Tensor:
        return _run(trainer, batch, [len(mask)], now[:, : max(lengths)], torch.zeros_like(now)[:, : max(lengths)])

    return {**loss_and_gradient(loss, policy), "advantages": batch["advantages"].numpy()}


class _Backbone(torch.nn.Module):
    """A causal model whose last hidden states are the wanted logits, and whose head is the identity."""

    def __init__(self, vocabulary: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.head = torch.nn.Linear(vocabulary, vocabulary, bias=False, dtype=dtype)
        self.head.weight = torch.nn.Parameter(torch.eye(vocabulary, dtype=dtype), requires_grad=False)
        self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(model_type="fake"))
        self.hidden: Any = None

    def forward(self, *_: Any, **__: Any) -> None:
        """Have a signature; `add_fused_lm_head` replaces it."""

    def base_model(self, **_: Any) -> Any:
        return SimpleNamespace(last_hidden_state=self.hidden)

    def get_output_embeddings(self) -> Any:
        return self.head


def loss_from_logits(
    *, logits: Array, ids: Array, prompt_lengths: Array, lengths: Array, temperature: float, **x: Any
) -> Answer:
    """From logits on: TRL's fused head, `_get_per_token_logps_and_entropies` and `_compute_loss`."""
    _refuse(x)
    prompt, width = int(max(prompt_lengths)), int(max(lengths))
    kind, config = settings(1, x)
    mask = np.arange(width) < lengths[:, None]
    batch = _ids(mask)
    places = np.clip(np.arange(prompt + width) - prompt + prompt_lengths[:, None], 0, ids.shape[1] - 1)
    moved = tensor(np.take_along_axis(ids, places, 1)).long()  # prompts padded on the left, as TRL's are
    batch |= {
        "prompt_ids": moved[:, :prompt],
        "completion_ids": moved[:, prompt:],
        "prompt_mask": torch.from_numpy((np.arange(prompt) >= prompt - prompt_lengths[:, None]).astype(np.int64)),
        "num_items_in_batch": torch.tensor(float(mask.sum())),
        "advantages": tensor(x["advantages"]),
        **{to: tensor(x[key][:, :width]) for to, key in NAMES.items() if x[key] is not None},
    }
    model = _Backbone(logits.shape[-1], tensor(logits).dtype)
    trainer_utils.add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy"))
    trainer = made(kind, config)
    kept: list[torch.Tensor] = []

    def loss(now: torch.Tensor) -> torch.Tensor:
        model.hidden = now.gather(1, torch.from_numpy(places)[..., None].expand(-1, -1, now.shape[-1]))
        score = kind._get_per_token_logps_and_entropies
        trainer._get_per_token_logps_and_entropies = lambda *arguments, **more: _keep(
            kept, score(trainer, *arguments, **more)
        )
        value: torch.Tensor = trainer._compute_loss(model, batch)
        return value

    answer = loss_and_gradient(loss, logits)
    return {**answer, "logprobs": kept[0].detach().numpy()}


def _keep(kept: list[torch.Tensor], scored: Any) -> Any:
    kept.append(scored[0])
    return scored
