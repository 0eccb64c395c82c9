"""A small model, eight rows and GRPO's loss in plain PyTorch, for the scripts beside this file."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY, WIDTH, PROMPT = 50, 16, 3
LENGTHS = (4, 6, 5, 3, 2, 6, 3, 5)  # tokens of the completions
REWARDS = (1.0, 0.0, 0.25, 1.0, 0.0, 0.5, 1.0, 0.125)  # of four prompts with two rows each


class Model(nn.Module):
    """The mean of the tokens so far, and two layers: no mask, no positions."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.inner = nn.Linear(WIDTH, 2 * WIDTH)
        self.drop = nn.Dropout(dropout)
        self.outer = nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return logits (B, T, V)."""
        states = self.embedding(ids)
        counts = torch.arange(1, ids.shape[1] + 1, device=ids.device)[:, None]
        hidden = self.drop(torch.tanh(self.inner(states.cumsum(1) / counts + states)))
        return self.head(torch.tanh(self.outer(hidden)))


def rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return token ids (8, T), their attention mask, and an advantage a row."""
    drawn = torch.Generator().manual_seed(1)
    lengths = torch.tensor(LENGTHS)
    ids = torch.randint(3, VOCABULARY, (len(LENGTHS), PROMPT + max(LENGTHS)), generator=drawn)
    ids[1::2, :PROMPT] = ids[::2, :PROMPT]
    attended = torch.arange(ids.shape[1]) < PROMPT + lengths[:, None]
    ids[~attended] = 0
    rewards = torch.tensor(REWARDS).reshape(-1, 2)
    return ids, attended, (rewards - rewards.mean(1, keepdim=True)).reshape(-1)


def log_probs(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the log-probs (B, T-1) of the tokens after the first."""
    scores = torch.log_softmax(model(ids, attention_mask=mask)[:, :-1], -1)
    return scores.gather(-1, ids[:, 1:, None])[..., 0]


def surrogate(
    policy: torch.Tensor, old: torch.Tensor, attended: torch.Tensor, advantages: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return GRPO's clipped surrogate of each token, 0 outside of completions, and the mask of these."""
    mask = (attended & (torch.arange(attended.shape[1]) >= PROMPT))[:, 1:].float()
    ratio = torch.exp(policy - old)
    bounded = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    return bounded * mask, mask
