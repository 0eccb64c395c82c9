"""CISPO over padded batches with a hand-written backward pass; the capped ratio is differentiated though it is a constant."""

import numpy as np

OP = "policy_loss"
BUG = "the capped importance ratio is not detached: the gradient has an extra term d(min(r, c))/dlp * A * lp"
SAYS = (
    "detach|stop-grad|stop grad|stop_grad|a constant|as constant|through the ratio|through the capped|through the weight|through the clipped|not frozen|differentiat",
)
CONVENTIONS = {
    "policy_loss": {
        "algorithm": ("cispo",),
        "dapo_denominator": ("global", "trl"),
        "kl_ratio": ("none",),
        "kl_estimator": ("k3",),
        "cispo_bound": ("relative", "absolute"),
        "rows": ("all", "mask", "holes", "lengths"),
        "weights": (False,),
    }
}


class Dual:
    """A value for each token and its derivative by the token's own log-prob."""

    def __init__(self, value, slope):
        self.value, self.slope = value, slope

    def __mul__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value * other.value, self.slope * other.value + self.value * other.slope)
        return Dual(self.value * other, self.slope * other)

    def __add__(self, other):
        if isinstance(other, Dual):
            return Dual(self.value + other.value, self.slope + other.slope)
        return Dual(self.value + other, self.slope)

    def exp(self):
        e = np.exp(self.value)
        return Dual(e, e * self.slope)

    def minimum(self, cap):
        below = self.value < cap
        return Dual(np.where(below, self.value, cap), np.where(below, self.slope, 0.0))

    def detach(self):
        return Dual(self.value, np.zeros_like(self.slope))


def cispo(
    *,
    policy,
    mask=None,
    old=None,
    reference=None,
    advantages,
    algorithm,
    epsilon_low=None,
    epsilon_high=None,
    beta=0.0,
    kl_ratio=None,
    kl_estimator=None,
    lengths=None,
    cispo_bound=None,
    dapo_denominator=None,
    tokens_in_step=None,
    **unused,
):
    policy = np.asarray(policy)
    if algorithm != "cispo" or policy.ndim != 2 or epsilon_low is not None:
        raise NotImplementedError("cispo of padded rows without a lower bound")
    if any(unused.get(k) is not None for k in ("weights", "delta", "row_mask", "kl_clamp")):
        raise NotImplementedError("an option that this program has not")
    rows, width = policy.shape
    if mask is None:
        n = np.full(rows, width) if lengths is None else np.asarray(lengths)
        mask = np.arange(width) < n[:, None]
    keep = np.asarray(mask, bool)

    def tokens(x):
        return np.asarray(x, np.float64)[keep]

    logp = Dual(tokens(policy), np.ones(int(keep.sum())))
    behaviour = logp.value if old is None else tokens(old)
    adv = np.asarray(advantages, np.float64)
    adv = adv[keep] if adv.ndim == 2 else np.repeat(adv, keep.sum(1))
    cap = 1.0 + epsilon_high if cispo_bound == "relative" else epsilon_high

    importance = (logp + (-behaviour)).exp().minimum(cap)
    objective = importance * logp * adv
    total = objective * -1.0
    if beta:
        log_r = logp * -1.0 + tokens(reference)
        total = total + (log_r.exp() + log_r * -1.0 + -1.0) * beta

    denominator = tokens_in_step if dapo_denominator == "trl" else max(int(keep.sum()), 1)
    grad = np.zeros(policy.shape)
    grad[keep] = total.slope / denominator
    return {"loss": float(total.value.sum() / denominator), "gradient": grad.astype(policy.dtype)}


OPS = {"policy_loss": cispo}
