"""The GRPO loss of a step with its gradient, float32."""

from __future__ import annotations

from functools import cache

import numpy as np

from benches import inputs
from benches.versus import proof
from benches.versus.model import Row, Side
from benches.versus.rows.kl import EXP
from reference.oracle import losses as oracle

SHAPES = ("4x64", "32x2048")
EPSILON = 0.2
BETAS = (0.0, 0.04)
GOAL = 5.0
SLACK = 64.0  # times 2u of the row's largest gradient: differences and exponentials rounded to float32 on the way


def rows():
    """With and without KL against torch and MLX."""
    found = []
    for beta in BETAS:
        for shape in SHAPES:
            batch, tokens = inputs.STEPS[shape]
            kl = beta > 0
            for name, side in (("torch", _torch), ("MLX", _mlx), ("MLX compiled", _mlx_compiled)):
                found.append(
                    Row(
                        f"policy_loss grpo with gradient float32, beta {beta:g}",
                        shape,
                        name,
                        lambda shape=shape, beta=beta: _ours(shape, beta),
                        (lambda side=side, shape=shape, beta=beta: side(shape, beta),),
                        needs=("policy_loss",),
                        goal=None if shape == "4x64" else GOAL,
                        reads=(13 if kl else 9) * batch * tokens,
                        writes=4 * batch * tokens,
                        flops=float(((2 if kl else 1) * EXP + (16 if kl else 8)) * batch * tokens),
                        quick=shape == "4x64",
                    )
                )
    return found


@cache
def _want(shape, beta):
    return oracle.policy_loss(
        **inputs.step(shape),
        algorithm="grpo",
        epsilon_low=float(np.float32(EPSILON)),
        epsilon_high=float(np.float32(EPSILON)),
        delta=None,
        beta=float(np.float32(beta)),
        kl_estimator="k3" if beta else None,
        kl_ratio="none",
    )


def _compare(name, loss, gradient, want, loss_limit, gradient_limit, because):
    """Within 16 ulp of a bound of the ratio either branch's gradient is right."""
    near = np.abs(gradient - want.gradient_other) < np.abs(gradient - want.gradient)
    wanted = np.where(want.near_branch & near, want.gradient_other, want.gradient)
    return [
        proof.within(f"{name}: loss", float(loss), want.loss, loss_limit + want.branch_slack, because),
        proof.within(f"{name}: gradient", gradient, wanted, gradient_limit + 1e-300, because),
    ]


def _ours(shape, beta):
    import rlkernels

    values, want = inputs.step(shape), _want(shape, beta)
    kl = "" if beta == 0.0 else f", reference=reference, beta={beta}"
    statement = (
        f"policy_loss(policy, old=old, advantages=advantages, mask=mask, "
        f'algorithm="grpo", epsilon_low={EPSILON}, epsilon_high={EPSILON}{kl})'
    )
    unit = 4 * 2 * 2.0**-24

    def verify(got):
        limits = unit * want.loss_scale, unit * want.gradient_scale + np.spacing(np.abs(want.gradient))
        return _compare("ours", got.loss, got.gradient, want, *limits, proof.ACCURACY)

    return Side(statement, {"policy_loss": rlkernels.policy_loss, **values}, verify)


def _framework(name, shape, beta, to_numpy):
    want = _want(shape, beta)
    unit = SLACK * 2 * 2.0**-24
    limits = unit * want.loss_scale, unit * np.max(want.gradient_scale, axis=1, keepdims=True)
    because = f"float32 throughout: {SLACK:g}·2u of the row's largest gradient"
    return lambda got: _compare(name, got[0], to_numpy(got[1]), want, *limits, because)


def _torch(shape, beta):
    import torch

    values = {name: torch.from_numpy(array) for name, array in inputs.step(shape).items()}
    policy = values["policy"].requires_grad_()
    old, reference, advantages = values["old"], values["reference"], values["advantages"][:, None]
    mask = values["mask"].float()

    def loss_and_gradient():
        ratio = torch.exp(policy - old)
        clipped = torch.clamp(ratio, 1 - EPSILON, 1 + EPSILON)
        terms = -torch.min(ratio * advantages, clipped * advantages)
        if beta:
            d = reference - policy
            terms = terms + beta * (torch.exp(d) - d - 1)
        loss = ((terms * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
        return loss.detach(), *torch.autograd.grad(loss, policy)

    note = "the expressions of TRL's _compute_loss (loss_type grpo) under autograd; tensors and a float mask made beforehand"
    verify = _framework("torch", shape, beta, lambda gradient: gradient.numpy())
    return Side("loss_and_gradient()", {"loss_and_gradient": loss_and_gradient}, verify, note)


def _mlx_call(shape, beta, wrap):
    import mlx.core as mx

    values = inputs.step(shape)
    values = values | {"mask": values["mask"].astype(np.float32), "advantages": values["advantages"][:, None]}
    arrays = [mx.array(values[name]) for name in ("policy", "old", "reference", "advantages", "mask")]
    mx.eval(arrays)

    def loss(policy, old, reference, advantages, mask):
        ratio = mx.exp(policy - old)
        clipped = mx.clip(ratio, 1 - EPSILON, 1 + EPSILON)
        terms = -mx.minimum(ratio * advantages, clipped * advantages)
        if beta:
            d = reference - policy
            terms = terms + beta * (mx.exp(d) - d - 1)
        return ((terms * mask).sum(-1) / mx.maximum(mask.sum(-1), 1.0)).mean()

    both = wrap(mx.value_and_grad(loss))

    def loss_and_gradient():
        result = both(*arrays)
        mx.eval(result)
        return result

    return loss_and_gradient


def _mlx(shape, beta):
    call = _mlx_call(shape, beta, lambda function: function)
    verify = _framework("MLX", shape, beta, np.asarray)
    return Side("loss_and_gradient()", {"loss_and_gradient": call}, verify, "mx.value_and_grad, evaluated")


def _mlx_compiled(shape, beta):
    import mlx.core as mx

    call = _mlx_call(shape, beta, mx.compile)
    verify = _framework("MLX compiled", shape, beta, np.asarray)
    return Side("loss_and_gradient()", {"loss_and_gradient": call}, verify, "mx.compile(mx.value_and_grad), evaluated")
