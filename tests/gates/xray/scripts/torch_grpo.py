"""A plain PyTorch loop on a small model: GRPO with a row mean, or a mistake that the first argument names."""

import sys

import torch
from torch import nn

MISTAKE = sys.argv[1] if len(sys.argv) > 1 else ""
VOCABULARY, WIDTH, PROMPT = 50, 16, 3
END = 2


class Model(nn.Module):
    """A recurrent model: it needs no mask and no positions."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.memory = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor | None = None) -> torch.Tensor:
        hidden, _ = self.memory(self.embedding(ids))
        return self.head(hidden)


def log_probs(model: nn.Module, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(model(ids, attention_mask=mask)[:, :-1], -1).gather(-1, ids[:, 1:, None])[..., 0]


torch.manual_seed(0)
dtype = torch.bfloat16 if MISTAKE == "bfloat16" else torch.float32
model = Model().to(dtype)
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
lengths = torch.tensor([4, 6, 5, 3])  # tokens of completions
ids = torch.randint(3, VOCABULARY, (4, PROMPT + int(lengths.max())))
ids[1, :PROMPT], ids[3, :PROMPT] = ids[0, :PROMPT], ids[2, :PROMPT]  # two prompts of two rows
attended = torch.arange(ids.shape[1]) < PROMPT + lengths[:, None]
ids[~attended] = 0
ids[torch.arange(4), PROMPT + lengths - 1] = END
completion = attended & (torch.arange(ids.shape[1]) >= PROMPT)
if MISTAKE == "prompt":
    completion = attended.clone()
if MISTAKE == "end":
    completion[torch.arange(4), PROMPT + lengths - 1] = False
with torch.no_grad():
    model(ids[:, :PROMPT], attention_mask=attended[:, :PROMPT])  # what a sampler would do first
    old = log_probs(model, ids, attended)
rewards = torch.tensor([1.0, 0.0, 0.25, 1.0])
pairs = rewards.reshape(2, 2)
advantages = (pairs - pairs.mean(1, keepdim=True)).reshape(-1)
mask = completion[:, 1:].to(dtype)
if "gates_note" in globals()["__builtins__"].__dict__:
    gates_note(rewards=rewards, groups=[0, 0, 1, 1])  # type: ignore[name-defined]  # noqa: F821
for _ in range(2):
    policy = log_probs(model, ids, attended)
    ratio = torch.exp(policy - (policy.detach() if MISTAKE == "no-ratio" else old))
    bounded = torch.minimum(ratio * advantages[:, None], ratio.clamp(0.8, 1.2) * advantages[:, None])
    rows = (bounded * mask).sum(1) / mask.sum(1)
    loss = -((bounded * mask).sum() / mask.sum() if MISTAKE == "token-mean" else rows.mean())
    if MISTAKE == "entropy":
        scores = torch.log_softmax(model(ids, attention_mask=attended)[:, :-1], -1)
        loss = loss + 0.1 * ((scores.exp() * scores).sum(-1) * mask).sum() / mask.sum()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
    optimizer.step()
print("trained", float(sum(parameter.detach().float().sum() for parameter in model.parameters())))
