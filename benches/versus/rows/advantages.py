"""Group advantages of float64 rewards."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace

from benches import inputs
from benches.versus import proof, statements
from benches.versus.model import Row, Side
from reference.oracle import advantages as oracle

OP = "group_advantages float64"
#: Each peer is compared in the convention that it has.
TRL = {"scale": "group", "ddof": 1, "eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
RLOX = {"scale": "group", "ddof": 0, "eps": 1e-8, "eps_mode": "threshold", "baseline": "mean"}
RLOX_GOALS = {"16x4": 1.3, "64x8": 1.5, "256x16": 6.0, "1024x32": 8.0}
GOAL = 10.0
FLOPS = 5  # per reward: sum, difference, square and sum, division


def rows():
    """Every shape against rlox, NumPy, torch and TRL."""
    return [row for shape in inputs.REWARDS for row in _of_shape(shape)]


def _of_shape(shape):
    prompts, group_size = inputs.REWARDS[shape]
    count = prompts * group_size
    common = {
        "needs": ("group_advantages",),
        "reads": 8 * count,
        "writes": 8 * count,
        "flops": float(FLOPS * count),
        "precision": "float64",
        "quick": shape == "16x4",
    }
    yield Row(
        OP, shape, "rlox", lambda: _ours(shape, "rlox"), (lambda: _rlox(shape),), goal=RLOX_GOALS[shape], **common
    )
    for name, side in (("NumPy", _numpy), ("torch", _torch), ("TRL", _trl)):
        yield Row(OP, shape, name, lambda: _ours(shape, "trl"), (lambda side=side: side(shape),), goal=GOAL, **common)


@cache
def _want(shape, convention):
    rewards, group_size = inputs.rewards(shape)
    chosen = {"trl": TRL, "rlox": RLOX}[convention]
    return [f(rewards, group_size, **chosen) for f in (oracle.group_advantages, oracle.advantage_scale)]


def _ours(shape, convention):
    import rlkernels

    rewards, group_size = inputs.rewards(shape)
    options = "" if convention == "trl" else ', ddof=0, eps=1e-8, eps_mode="threshold"'
    names = {"group_advantages": rlkernels.group_advantages, "rewards": rewards}
    statement = f"group_advantages(rewards, {group_size}{options})"
    return Side(statement, names, proof.ours("advantages", "float64", *_want(shape, convention)))


def _checked(shape, convention, name, to_numpy, share, because):
    want, scale = _want(shape, convention)
    return lambda got: [proof.within(f"{name}: advantages", to_numpy(got), want, share * scale + 1e-300, because)]


def _rlox(shape):
    import rlox

    rewards, group_size = inputs.rewards(shape)
    verify = _checked(shape, "rlox", "rlox", lambda a: a, 2.0**-46, "64 times ours: plain float64 sums")
    names = {"compute_batch_group_advantages": rlox.compute_batch_group_advantages, "rewards": rewards}
    note = "its convention: ddof 0, zero where std < 1e-8"
    return Side(f"compute_batch_group_advantages(rewards, {group_size})", names, verify, note)


def _numpy(shape):
    rewards, group_size = inputs.rewards(shape)

    def advantages(rewards):
        rows = rewards.reshape(-1, group_size)
        spread = rows.std(axis=1, ddof=1, keepdims=True)
        return ((rows - rows.mean(axis=1, keepdims=True)) / (spread + 1e-4)).reshape(-1)

    verify = _checked(shape, "trl", "NumPy", lambda a: a, 2.0**-46, "64 times ours: plain float64 sums")
    note = "reshape, mean and std (ddof 1) along an axis, the difference over std + 1e-4"
    return Side("advantages(rewards)", {"advantages": advantages, "rewards": rewards}, verify, note)


def _torch(shape):
    import torch

    rewards, group_size = inputs.rewards(shape)

    def advantages(rewards):
        rows = rewards.view(-1, group_size)
        mean, std = (values.repeat_interleave(group_size, dim=0) for values in (rows.mean(dim=1), rows.std(dim=1)))
        return (rewards - mean) / (std + 1e-4)

    verify = _checked(shape, "trl", "torch", lambda a: a.numpy(), 2.0**-46, "64 times ours: plain float64 sums")
    note = "as TRL wrote it before it knew unscored rewards: mean and std per group, repeat_interleave, divide; float64"
    return Side("advantages(rewards)", {"advantages": advantages, "rewards": torch.from_numpy(rewards)}, verify, note)


def _trl(shape):
    import torch
    from trl import GRPOTrainer

    rewards, group_size = inputs.rewards(shape)
    advantages = statements.cut(
        GRPOTrainer._generate_and_score_completions,
        "unscorable_mask = ",
        "advantages = torch.nan_to_num",
        ("self", "rewards_per_func", "num_generations", "device"),
        "advantages",
    )
    trainer = SimpleNamespace(
        multi_objective_aggregation="sum_then_normalize", scale_rewards="group", reward_weights=torch.ones(1)
    )
    names = {"advantages": advantages, "trainer": trainer, "rewards": torch.from_numpy(rewards)[:, None].clone()}
    verify = _checked(
        shape, "trl", "TRL", lambda a: a.numpy(), 2.0**-22, "Bessel's correction is a float32 quotient in TRL's nanstd"
    )
    note = (
        "the statements of GRPOTrainer._generate_and_score_completions from unscorable_mask to nan_to_num, one reward"
    )
    return Side(f'advantages(trainer, rewards, {group_size}, "cpu")', names, verify, note)
