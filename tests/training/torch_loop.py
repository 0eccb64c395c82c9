"""GRPO in plain PyTorch: token mean over the step, clip, KL to a reference, micro-batches, two updates per rollout."""

import argparse
import os
import random
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

try:
    from gates_xray import gates_note
except ImportError:

    def gates_note(**facts):
        pass


SETTINGS = {
    "algorithm": "dapo",  # token mean over the whole step
    "epsilon_low": 0.2,
    "epsilon_high": 0.28,
    "beta": 0.05,
    "scale": "group",
    "ddof": 1,
    "eps": 1e-4,
    "eps_mode": "add",
    "baseline": "mean",
    "temperature": 1.0,
    "learning_rate": 1e-3,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "group_size": 4,
    "micro_batch": 4,
    "updates": 2,
    "max_new_tokens": 10,
    "end_bias": 5.5,  # the end token is rare in a random model: the sampler adds this to its logit
    "dtype": "float32",
}
NOTED = "algorithm", "epsilon_low", "epsilon_high", "beta", "scale", "ddof", "eps", "eps_mode", "baseline"
PROMPTS = ["one two three", "what is it", "x"]


def load(folder):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, SETTINGS["dtype"]))


def make_optimizer(model):
    return torch.optim.AdamW(
        model.parameters(), lr=SETTINGS["learning_rate"], weight_decay=SETTINGS["weight_decay"]
    )


def tokenize(tokenizer, prompts):
    """Return prompts repeated for their groups, padded on the left, and their mask."""
    rows = [tokenizer(prompt)["input_ids"] for prompt in prompts for _ in range(SETTINGS["group_size"])]
    width = max(len(row) for row in rows)
    ids = torch.tensor([[tokenizer.pad_token_id] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


def positions(mask):
    return (mask.cumsum(dim=-1) - 1).clamp(min=0)


def pick(logits, generator):
    """Sample a token for each row."""
    return torch.multinomial(torch.softmax(logits / SETTINGS["temperature"], dim=-1), 1, generator=generator)


@torch.no_grad()
def sample(model, tokenizer, ids, mask, generator):
    """Return ids and attention mask of prompts with completions, and the mask of completions (with their end token)."""
    width, end = ids.size(1), tokenizer.eos_token_id
    done = torch.zeros(len(ids), dtype=torch.bool)
    for step in range(SETTINGS["max_new_tokens"]):
        logits = model(input_ids=ids, attention_mask=mask, position_ids=positions(mask)).logits[:, -1].float()
        logits[:, end] += SETTINGS["end_bias"] if step else -1e9  # no empty answers
        token = pick(logits, generator).squeeze(1)
        token = torch.where(done, torch.full_like(token, tokenizer.pad_token_id), token)
        ids = torch.cat([ids, token[:, None]], dim=1)
        mask = torch.cat([mask, (~done).long()[:, None]], dim=1)
        done = done | (token == end)
        if done.all():
            break
    completion = mask.clone()
    completion[:, :width] = 0
    return ids, mask, completion


def make_rollout(model, tokenizer, generator):
    ids, mask = tokenize(tokenizer, PROMPTS)
    ids, mask, completion = sample(model, tokenizer, ids, mask, generator)
    groups = [prompt for prompt in range(len(PROMPTS)) for _ in range(SETTINGS["group_size"])]
    texts = [row[keep.bool()].tolist() for row, keep in zip(ids, completion, strict=True)]
    return {"ids": ids, "mask": mask, "completion": completion, "groups": groups, "texts": texts}


def reward_of(texts):
    """Return a number for each completion; a noisy judge."""
    judge = random.Random(5)
    return [0.5 * (len(text) % 4) + 0.2 * (sum(text) % 5) + judge.random() for text in texts]


def advantages_of(rewards):
    rewards = torch.tensor(rewards).view(-1, SETTINGS["group_size"])
    centered = rewards - rewards.mean(dim=1, keepdim=True)
    return (centered / (rewards.std(dim=1, keepdim=True) + SETTINGS["eps"])).view(-1)


def token_logps(model, batch):
    """Return the log-probability of each token from the second on, zero outside the completions."""
    mask = batch["mask"]
    logits = model(input_ids=batch["ids"], attention_mask=mask, position_ids=positions(mask)).logits[:, :-1].float()
    logps = torch.log_softmax(logits / SETTINGS["temperature"], dim=-1)
    return logps.gather(-1, batch["ids"][:, 1:, None]).squeeze(-1) * loss_mask(batch)


def loss_mask(batch):
    return batch["completion"][:, 1:].float()


@torch.no_grad()
def old_logps_of(model, rollout):
    return token_logps(model, rollout)


@torch.no_grad()
def reference_logps_of(reference, rollout):
    return token_logps(reference, rollout)


def policy_term(logps, old, advantages):
    ratio = torch.exp(logps - old)
    clipped = ratio.clamp(1 - SETTINGS["epsilon_low"], 1 + SETTINGS["epsilon_high"])
    return -torch.min(ratio * advantages[:, None], clipped * advantages[:, None])


def kl_term(logps, reference):
    delta = reference - logps
    return torch.exp(delta) - delta - 1


def batch_loss(model, batch, tokens_of_step, batches):
    """Return this micro-batch's share of the step's loss."""
    logps = token_logps(model, batch)
    loss = policy_term(logps, batch["old"], batch["advantages"])
    loss = loss + SETTINGS["beta"] * kl_term(logps, batch["reference"])
    return (loss * loss_mask(batch)).sum() / tokens_of_step


def micro_batches(rollout):
    size = SETTINGS["micro_batch"]
    for start in range(0, len(rollout["ids"]), size):
        yield {name: value[start : start + size] for name, value in rollout.items()}


def after_backward(model):
    """Called after the backward pass of each micro-batch."""


def zero_grad(optimizer):
    optimizer.zero_grad()


def apply(model, optimizer):
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["max_grad_norm"])
    optimizer.step()
    return float(norm)


def update(model, optimizer, rollout):
    batches = list(micro_batches(rollout))
    tokens = loss_mask(rollout).sum()
    total = 0.0
    for batch in batches:
        loss = batch_loss(model, batch, tokens, len(batches))
        loss.backward()
        after_backward(model)
        total += loss.item()
    norm = apply(model, optimizer)
    zero_grad(optimizer)
    return total, norm


def before_update(model, rollout, number):
    """Called before each update, with its number."""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--notes", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    believed = {name: SETTINGS[name] for name in NOTED if name in SETTINGS}
    adapt()
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model, reference = load(options.model), load(options.model).eval()
    optimizer = make_optimizer(model)
    generator = torch.Generator().manual_seed(options.seed)
    rollout = make_rollout(model, tokenizer, generator)
    rewards = reward_of(rollout["texts"])
    rollout["advantages"] = advantages_of(rewards)
    rollout["old"] = old_logps_of(model, rollout)
    rollout["reference"] = reference_logps_of(reference, rollout)
    for number in range(SETTINGS["updates"]):
        if options.notes:
            gates_note(rewards=rewards, groups=rollout["groups"], ids=rollout["texts"], settings=believed)
        before_update(model, rollout, number)
        total, norm = update(model, optimizer, rollout)
        print(f"update {number} loss {total:.6f} norm {norm:.6f}")
    os.makedirs(options.out, exist_ok=True)
    model.save_pretrained(options.out)
    if os.environ.get("MISTAKES_DEBUG"):
        debug(model, rollout)


def adapt():
    """Change the settings that the program runs with; nothing here."""


@torch.no_grad()
def debug(model, rollout):
    ratio = torch.exp(token_logps(model, rollout) - rollout["old"])[loss_mask(rollout).bool()]
    print("DEBUG weights", sum(float(value.double().sum()) for value in model.parameters()))
    print("DEBUG lengths", [len(text) for text in rollout["texts"]], "ratio", float(ratio.min()), float(ratio.max()))
    print("DEBUG ends", [text[-1] == 2 for text in rollout["texts"]], "first rows", rollout["texts"][:2])


def patch(**functions):
    """Replace functions of this program by others."""
    for name, function in functions.items():
        setattr(sys.modules[__name__], name, function)


if __name__ == "__main__":
    main()
