"""Record a step of a plain PyTorch loop for `gates judge`: `record` is what your own loop needs.

docs/recorded-steps.md describes the file.

    python examples/recorded_steps/plain_pytorch.py step.safetensors
"""

import sys

import torch
from safetensors.torch import save_file


def record(path: str, settings: dict[str, object], **tensors: torch.Tensor | None) -> None:
    """Write one step; log-probs and gradient keep their dtype, half types become float32."""
    kept = {}
    for name, tensor in tensors.items():
        if tensor is not None:
            plain = tensor.detach().cpu().contiguous()
            kept[name] = plain.float() if plain.dtype in {torch.bfloat16, torch.float16} else plain
    save_file(kept, path, {"recorded_step": "1", **{name: str(value) for name, value in settings.items()}})


def grpo_loss(policy, old, advantages, mask, epsilon):  # noqa: ANN001, ANN201  your loss, as you have it
    """Return GRPO's loss as many write it."""
    ratio = torch.exp(policy - old)
    held = torch.clamp(ratio, 1 - epsilon, 1 + epsilon)
    terms = -torch.min(ratio * advantages[:, None], held * advantages[:, None])
    return ((terms * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()


def main(path: str) -> None:
    """Record a step with random log-probs."""
    torch.manual_seed(0)
    rewards = torch.randint(0, 3, (16,)).float()
    groups = rewards.reshape(-1, 4)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).reshape(-1)
    mask = (torch.arange(24) < torch.randint(6, 25, (16, 1))).float()
    old = -torch.empty(16, 24).exponential_()
    policy = (old + 0.15 * torch.randn(16, 24)).clamp(max=0)  # in a trainer: per-token log-probs
    policy.requires_grad_()

    loss = grpo_loss(policy, old, advantages, mask, 0.2)
    (gradient,) = torch.autograd.grad(loss, policy, retain_graph=True)  # before loss.backward()
    settings = {"algorithm": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, "group_size": 4}
    settings |= {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
    arrays = {"policy": policy, "old": old, "mask": mask, "rewards": rewards, "advantages": advantages}
    record(path, settings, **arrays, loss=loss, gradient=gradient)


if __name__ == "__main__":
    main(sys.argv[1])
