"""Dr. GRPO in plain MLX: rewards centered and not scaled, a constant denominator, clip, KL, two updates per rollout."""

import argparse
import os
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import mlx_lm
import numpy as np
from mlx.utils import tree_flatten, tree_map

try:
    from gates_xray import gates_note
except ImportError:

    def gates_note(**facts):
        pass


SETTINGS = {
    "algorithm": "dr_grpo",
    "epsilon_low": 0.2,
    "epsilon_high": 0.2,
    "beta": 0.04,
    "scale": "none",
    "baseline": "mean",
    "temperature": 1.0,
    "learning_rate": 4e-4,
    "group_size": 4,
    "micro_batch": 4,
    "updates": 2,
    "max_new_tokens": 10,
    "end_bias": 5.0,  # the end token is rare in a random model: the sampler adds this to its logit
}
NOTED = "algorithm", "epsilon_low", "epsilon_high", "beta", "scale", "ddof", "eps", "eps_mode", "baseline"
PROMPTS = ["one two three", "what is it"]


def sample_row(model, prompt, end):
    """Return the tokens of one completion, with its end token where it ended."""
    tokens = []
    while len(tokens) < SETTINGS["max_new_tokens"]:
        logits = model(mx.array([prompt + tokens]))[0, -1].astype(mx.float32)
        bias = mx.zeros(logits.shape).at[end].add(SETTINGS["end_bias"] if tokens else -1e9)
        tokens.append(mx.random.categorical((logits + bias) / SETTINGS["temperature"]).item())
        if tokens[-1] == end:
            break
    return tokens


def make_rollout(model, tokenizer):
    end = tokenizer.eos_token_id
    prompts, texts, groups = [], [], []
    for number, text in enumerate(PROMPTS):
        for _ in range(SETTINGS["group_size"]):
            prompt = tokenizer.encode(text)
            prompts.append(prompt)
            texts.append(sample_row(model, prompt, end))
            groups.append(number)
    return {"prompts": prompts, "texts": texts, "groups": groups}


def reward_of(texts):
    return [0.5 * (len(text) % 4) + 0.2 * (sum(text) % 5) + 0.1 * row for row, text in enumerate(texts)]


def advantages_of(rewards):
    rewards = np.array(rewards, dtype=np.float32).reshape(-1, SETTINGS["group_size"])
    return mx.array((rewards - rewards.mean(axis=1, keepdims=True)).reshape(-1))


def collate(prompts, texts):
    """Return the rows padded on the right, and the mask of completion tokens from the second column on."""
    rows = [prompt + text for prompt, text in zip(prompts, texts, strict=True)]
    width = max(len(row) for row in rows)
    ids = mx.array([row + [0] * (width - len(row)) for row in rows])
    mask = np.zeros((len(rows), width), dtype=np.float32)
    for number, (prompt, row) in enumerate(zip(prompts, rows, strict=True)):
        mask[number, len(prompt) : len(row)] = 1
    return ids, mx.array(mask[:, 1:])


def token_logps(model, ids):
    logits = model(ids[:, :-1]).astype(mx.float32) / SETTINGS["temperature"]
    logps = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    return mx.take_along_axis(logps, ids[:, 1:, None], axis=-1)[..., 0]


def weights_of(logps, old, mask):
    """Return the ratio of each token."""
    return mx.exp((logps - old) * mask)


def policy_term(logps, old, mask, advantages):
    ratio = weights_of(logps, old, mask)
    clipped = mx.clip(ratio, 1 - SETTINGS["epsilon_low"], 1 + SETTINGS["epsilon_high"])
    return -mx.minimum(ratio * advantages[:, None], clipped * advantages[:, None])


def kl_term(logps, reference):
    delta = reference - logps
    return mx.exp(delta) - delta - 1


def aggregate(loss, mask, rows_of_step):
    """Return the share of a micro-batch in the loss of the step."""
    return (loss * mask).sum() / (rows_of_step * SETTINGS["max_new_tokens"])


def loss_of(model, batch, rows_of_step):
    logps = token_logps(model, batch["ids"])
    loss = policy_term(logps, batch["old"], batch["mask"], batch["advantages"])
    loss = loss + SETTINGS["beta"] * kl_term(logps, batch["reference"])
    return aggregate(loss, batch["mask"], rows_of_step)


def make_optimizer():
    return optim.AdamW(SETTINGS["learning_rate"], weight_decay=0.0)


def update(model, optimizer, rollout):
    rows, size = len(rollout["ids"]), SETTINGS["micro_batch"]
    compute = nn.value_and_grad(model, loss_of)
    total, grads = 0.0, None
    for start in range(0, rows, size):
        batch = {name: rollout[name][start : start + size] for name in ("ids", "mask", "old", "reference", "advantages")}
        loss, grad = compute(model, batch, rows)
        grads = grad if grads is None else tree_map(lambda a, b: a + b, grads, grad)
        total += loss.item()
    grads, norm = optim.clip_grad_norm(grads, 1.0)
    optimizer.update(model, grads)
    mx.eval(model.parameters(), optimizer.state)
    return total, norm.item()


def between_updates(optimizer):
    """Return the optimizer of the next update."""
    return optimizer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--notes", action="store_true")
    options = parser.parse_args()
    mx.random.seed(options.seed)
    believed = {name: SETTINGS[name] for name in NOTED if name in SETTINGS}
    model, tokenizer = mlx_lm.load(options.model)
    reference = mlx_lm.load(options.model)[0]
    reference.freeze()
    optimizer = make_optimizer()
    rollout = make_rollout(model, tokenizer)
    rollout["ids"], rollout["mask"] = collate(rollout["prompts"], rollout["texts"])
    rewards = reward_of(rollout["texts"])
    rollout["advantages"] = advantages_of(rewards)
    rollout["old"] = mx.stop_gradient(token_logps(model, rollout["ids"]))
    rollout["reference"] = mx.stop_gradient(token_logps(reference, rollout["ids"]))
    mx.eval(rollout["old"], rollout["reference"])
    for number in range(SETTINGS["updates"]):
        if options.notes:
            gates_note(rewards=rewards, groups=rollout["groups"], ids=rollout["texts"], settings=believed)
        total, norm = update(model, optimizer, rollout)
        optimizer = between_updates(optimizer)
        print(f"update {number} loss {total:.6f} norm {norm:.6f}")
    os.makedirs(options.out, exist_ok=True)
    mx.save_safetensors(str(Path(options.out) / "model.safetensors"), dict(tree_flatten(model.parameters())))
    if os.environ.get("MISTAKES_DEBUG"):
        ratio = mx.exp((token_logps(model, rollout["ids"]) - rollout["old"]) * rollout["mask"])
        weights = sum(float(np.array(value, dtype=np.float64).sum()) for _, value in tree_flatten(model.parameters()))
        print("DEBUG weights", weights, "ratio", ratio.min().item(), ratio.max().item())
        print("DEBUG lengths", [len(text) for text in rollout["texts"]], rollout["texts"][:2])


def patch(**functions):
    """Replace functions of this program by others."""
    for name, function in functions.items():
        setattr(sys.modules[__name__], name, function)


if __name__ == "__main__":
    main()
