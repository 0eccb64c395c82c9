"""DAPO with masked truncated rows; the number of tokens that divides the loss is counted before those rows are left out."""

import numpy as np

OP = "policy_loss"
BUG = "the token-mean's denominator still counts the tokens of rows that row_mask leaves out (numerator and denominator disagree)"
SAYS = (
    "denominator|normalis|normaliz|divis|divided|count|number of tokens|token mean|token-mean|num_items",
    "row_mask|row mask|left out|left-out|masked row|rows masked|truncat|excluded|do not train|not train|dropped|before the mask|overlong|filtered",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("dapo",),
        "dapo_denominator": ("global",),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
        "rows": ("row-mask",),
        "weights": (False,),
        "advantages": ("row",),
    }
}


class DapoLoss:
    def __init__(self, low, high, beta):
        self.low, self.high, self.beta = 1.0 - low, 1.0 + high, beta

    def prepare(self, inputs):
        completion = np.asarray(inputs["mask"], bool)
        num_items = int(completion.sum())
        if inputs["row_mask"] is not None:
            completion = completion & np.asarray(inputs["row_mask"], bool)[:, None]
        return completion, max(num_items, 1)

    def policy_term(self, lp, old, adv):
        r = np.exp(lp - old)
        plain = r * adv
        limited = np.clip(r, self.low, self.high) * adv
        slope = np.where(plain <= limited, plain, np.where((self.low < r) & (r < self.high), plain, 0.0))
        return -np.minimum(plain, limited), -slope

    def kl_term(self, lp, ref):
        x = ref - lp
        return np.expm1(x) - x, -np.expm1(x)

    def __call__(self, inputs):
        completion, num_items = self.prepare(inputs)
        pick = lambda name: np.asarray(inputs[name])[completion].astype(np.float64)
        lp = pick("policy")
        old = lp if inputs["old"] is None else pick("old")
        adv = np.repeat(np.asarray(inputs["advantages"], np.float64), completion.sum(1))
        loss, slope = self.policy_term(lp, old, adv)
        if self.beta:
            kl, dkl = self.kl_term(lp, pick("reference"))
            loss, slope = loss + self.beta * kl, slope + self.beta * dkl
        grad = np.zeros(completion.shape)
        grad[completion] = slope / num_items
        return loss.sum() / num_items, grad


def policy_loss(
    *,
    policy,
    mask=None,
    row_mask=None,
    old=None,
    reference=None,
    advantages,
    algorithm,
    epsilon_low,
    epsilon_high,
    beta=0.0,
    kl_ratio=None,
    kl_estimator=None,
    dapo_denominator=None,
    delta=None,
    lengths=None,
    max_length=None,
    micro_batches=None,
    group_size=None,
    tokens_in_step=None,
    weights=None,
    cispo_bound=None,
    sapo_temperature_positive=None,
    sapo_temperature_negative=None,
):
    policy = np.asarray(policy)
    if algorithm != "dapo" or dapo_denominator != "global" or policy.ndim != 2 or delta is not None:
        raise NotImplementedError("dapo with the global denominator")
    if mask is None:
        stop = np.full(len(policy), policy.shape[1]) if lengths is None else np.asarray(lengths)
        mask = np.arange(policy.shape[1]) < stop[:, None]
    loss, grad = DapoLoss(epsilon_low, epsilon_high, beta)(
        dict(policy=policy, mask=mask, row_mask=row_mask, old=old, reference=reference, advantages=advantages)
    )
    return {"loss": float(loss), "gradient": grad.astype(policy.dtype)}


OPS = {"policy_loss": policy_loss}
