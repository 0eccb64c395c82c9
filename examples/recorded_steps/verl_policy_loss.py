"""Record a micro-batch of verl's actor for `gates judge`: a policy loss that calls verl's own and writes what it used.

It is for loss_agg_mode "token-mean". Import this file in the actor's process, and set
`actor_rollout_ref.actor.policy_loss.loss_mode=recorded`. The loss is the policy term: verl adds the KL afterwards.
`main` runs it without an actor: GRPO's advantages and the loss are verl's own functions, on a random batch on the CPU.

    python examples/recorded_steps/verl_policy_loss.py step.safetensors
"""

import sys

import torch
from safetensors.torch import save_file
from verl.trainer.ppo.core_algos import (
    compute_grpo_outcome_advantage,
    compute_policy_loss_vanilla,
    get_policy_loss_fn,
    register_policy_loss,
)
from verl.workers.config import ActorConfig

PATH = "step.safetensors"


@register_policy_loss("recorded")
def recorded(old_log_prob, log_prob, advantages, response_mask, loss_agg_mode="token-mean", config=None, **kwargs):  # noqa: ANN001, ANN003, ANN201
    """Return verl's vanilla loss, and write the micro-batch that was last."""
    found = compute_policy_loss_vanilla(
        old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config, **kwargs
    )
    loss, info = found[0], config.global_batch_info
    first = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
    if loss.requires_grad and loss_agg_mode == "token-mean" and first:
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


def main(path: str) -> None:
    """Record a step with random log-probs and rewards: 4 prompts, 4 answers each."""
    global PATH  # noqa: PLW0603
    PATH = path
    torch.manual_seed(0)
    mask = (torch.arange(24) < torch.randint(6, 25, (16, 1))).float()
    rewards = torch.zeros(16, 24)  # verl's rewards stand on tokens: here on the last one
    rewards[torch.arange(16), mask.sum(1).long() - 1] = torch.randint(0, 3, (16,)).float()
    advantages, _ = compute_grpo_outcome_advantage(rewards, mask, (torch.arange(16) // 4).numpy())
    old = -torch.empty(16, 24).exponential_()
    policy = (old + 0.3 * torch.randn(16, 24)).clamp(max=0).requires_grad_()
    config = ActorConfig(strategy="fsdp", rollout_n=4, ppo_micro_batch_size_per_gpu=16, clip_ratio_high=0.28)
    get_policy_loss_fn("recorded")(old, policy, advantages, mask, config.loss_agg_mode, config)


if __name__ == "__main__":
    main(sys.argv[1])
