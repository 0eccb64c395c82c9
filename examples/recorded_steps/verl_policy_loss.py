"""Record a micro-batch of verl's actor for `gates judge`: a policy loss that calls verl's own and writes what it used.

Written from verl's source (verl/trainer/ppo/core_algos.py with `register_policy_loss`, verl/workers/utils/losses.py), of
loss_agg_mode "token-mean", and not run: verl needs a GPU. Import this file in the actor's process, and set
`actor_rollout_ref.actor.policy_loss.loss_mode=recorded`. The loss is the policy term: verl adds the KL afterwards.
"""

import torch
from safetensors.torch import save_file
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla, register_policy_loss

PATH = "step.safetensors"


@register_policy_loss("recorded")
def recorded(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None, **kwargs):  # noqa: ANN001, ANN003, ANN201
    """Return verl's vanilla loss, and write the micro-batch that was last."""
    found = compute_policy_loss_vanilla(
        old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, **kwargs
    )
    loss, info = found[0], config.global_batch_info
    if loss.requires_grad and loss_agg_mode == "token-mean" and torch.distributed.get_rank() == 0:
        (gradient,) = torch.autograd.grad(loss, log_prob, retain_graph=True)
        tokens = (info.get("batch_num_tokens") or int(response_mask.sum())) / info.get("dp_size", 1)
        arrays = {"policy": log_prob, "old": old_log_prob, "advantages": advantages, "loss": loss, "gradient": gradient}
        if kwargs.get("rollout_is_weights") is not None:
            arrays["weights"] = kwargs["rollout_is_weights"]
        tensors = {name: x.detach().float().cpu().contiguous() for name, x in arrays.items()}
        tensors["mask"] = response_mask.detach().bool().cpu().contiguous()
        clip = config.clip_ratio
        low = clip if config.clip_ratio_low is None else config.clip_ratio_low
        high = clip if config.clip_ratio_high is None else config.clip_ratio_high
        settings = {"recorded_step": 1, "algorithm": "dapo", "dapo_denominator": "trl", "tokens_in_step": tokens}
        settings |= {"epsilon_low": low, "epsilon_high": high, "delta": config.clip_ratio_c}
        save_file(tensors, PATH, {name: str(value) for name, value in settings.items()})
    return found
