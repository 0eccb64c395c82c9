"""Write one GRPO step as a file for `gates judge`, by NumPy alone: a right one, or one with a mistake.

docs/recorded-steps.md describes the file.

    python examples/recorded_steps/make_step.py step.safetensors
    python examples/recorded_steps/make_step.py wrong.safetensors --mistake mask
"""

import argparse
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

PROMPTS, SAMPLES, WIDTH, EPSILON, BETA = 4, 4, 24, 0.2, 0.04
SETTINGS = {
    "recorded_step": "1",
    "algorithm": "grpo",
    "epsilon_low": str(EPSILON),
    "epsilon_high": str(EPSILON),
    "beta": str(BETA),
    "kl_estimator": "k3",
    "kl_ratio": "none",
    "group_size": str(SAMPLES),
    "scale": "group",
    "ddof": "1",
    "eps": "1e-4",
    "eps_mode": "add",
    "baseline": "mean",
}
MISTAKES = {
    "none": "a right step",
    "mask": "the completion mask is shifted by one position",
    "ddof": "the deviation of the rewards divides by G, not by G − 1",
    "clip": "the clip of the ratio never acts",
    "kl": "the logged KL is averaged over padding too",
    "sampler": "the sampler has another temperature than the trainer",
}


def rollout(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Return log-probs as a trainer has them, a mask with a tool's turn, and rewards."""
    shape = PROMPTS * SAMPLES, WIDTH
    sampling = -rng.exponential(1.0, shape)
    old = sampling + rng.normal(0.0, 1e-5, shape)  # the trainer's own forward, on another path
    policy = old + rng.normal(0.0, 0.15, shape)  # after some updates
    reference = old + rng.normal(0.0, 0.3, shape)
    mask = np.arange(WIDTH) < rng.integers(6, WIDTH + 1, shape[0])[:, None]
    mask[::3, 3:5] = False  # a tool's turn
    found = {"policy": policy, "old": old, "reference": reference, "sampling": sampling}
    found = {name: np.minimum(array, 0).astype(np.float32) for name, array in found.items()}
    return {**found, "mask": mask, "rewards": rng.integers(0, 3, shape[0]).astype(np.float32)}


def advantages(rewards: np.ndarray, ddof: int) -> np.ndarray:
    """Return the z-score of each prompt's rewards, as TRL computes it."""
    groups = rewards.reshape(-1, SAMPLES)
    centred = groups - groups.mean(axis=1, keepdims=True)
    return (centred / (groups.std(axis=1, ddof=ddof, keepdims=True) + np.float32(1e-4))).reshape(-1)


def loss(step: dict[str, np.ndarray], mask: np.ndarray, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """Return GRPO's loss and its gradient by the policy's log-probs, in float32."""
    a = step["advantages"][:, None]
    ratio = np.exp(step["policy"] - step["old"])
    free, held = ratio * a, np.clip(ratio, 1 - epsilon, 1 + epsilon) * a
    d = step["reference"] - step["policy"]
    terms = -np.minimum(free, held) + np.float32(BETA) * (np.exp(d) - d - 1)
    slope = -np.where(free <= held, free, 0) + np.float32(BETA) * (1 - np.exp(d))
    weight = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1).astype(np.float32) / np.float32(len(mask))
    return np.asarray((terms * weight).sum(), np.float32), (slope * weight).astype(np.float32)


def recorded(mistake: str, seed: int = 0) -> dict[str, np.ndarray]:
    """Return the tensors of the file."""
    step = rollout(np.random.default_rng(seed))
    mask = step["mask"]
    step["advantages"] = advantages(step["rewards"], ddof=0 if mistake == "ddof" else 1)
    seen = np.pad(mask[:, :-1], ((0, 0), (1, 0))) if mistake == "mask" else mask
    step["loss"], step["gradient"] = loss(step, seen, 1e9 if mistake == "clip" else EPSILON)
    d = np.where(mask, step["reference"] - step["policy"], 0)
    kl = (np.exp(d) - d - 1).sum() / (mask.size if mistake == "kl" else mask.sum())
    step["metric.kl"] = np.asarray(kl, np.float32)
    if mistake == "sampler":
        step["sampling"] = (step["sampling"] * np.float32(1.1)).astype(np.float32)
    return step


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--mistake", choices=MISTAKES, default="none", help="; ".join(map(": ".join, MISTAKES.items())))
    given = parser.parse_args()
    save_file(recorded(given.mistake), given.file, SETTINGS)
    print(f"wrote {given.file}: {MISTAKES[given.mistake]}")


if __name__ == "__main__":
    main()
