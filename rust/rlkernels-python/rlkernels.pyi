"""Kernels of LLM reinforcement-learning post-training, written in Rust.

Arrays are those of NumPy, and of any library that offers DLPack for memory that the CPU reads: torch's CPU tensors, MLX
arrays (one that is still lazy is evaluated by the call). An array is read in place, however large, where it is
C-contiguous, aligned and of native byte order; otherwise it is copied once, up to 2**31 elements. At most 8 dimensions.
Nothing is converted silently: another element type is a `TypeError` that names the remedy, a wrong value a `ValueError`
that shows it. A tensor on a GPU or one that requires grad is refused, with the call that helps.

`out` is a NumPy array of the result's shape and type that is C-contiguous, writeable and shares no memory with an
input; it is returned. After an error it holds anything.

float32 data is computed in float64 and rounded once; float64 data uses error-free differences and compensated sums.

Large inputs are worked on without the GIL. As with NumPy's own functions, keeping other threads from writing to an input
or to `out` meanwhile is the caller's business: the result would be meaningless. Results never depend on how many
threads call at once. Interpreters without a GIL are not supported: the wheel does not load there.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray

_Float = TypeVar("_Float", np.float32, np.float64)

class BuildInfo(TypedDict):
    """What `build_info` returns; exists in this stub only."""

    version: str
    profile: Literal["release", "debug"]
    target: str
    rustc: str
    features: list[str]
    isa: str
    threads: int
    cpus: int

def build_info() -> BuildInfo:
    """Facts about this build and this machine.

    Returns:
        `version` of the crate; `profile`; `target`, the triple built for; `rustc`, the compiler; `features`, the
        instruction sets found at run time; `threads` that one kernel call uses; `cpus` that this process may use.
    """

def available_isas() -> list[str]:
    """The instruction sets of this machine for which the kernels are compiled, slowest first: "scalar", "avx2", ...

    Every one of them gives the same bits. The environment variable RLKERNELS_ISA forces one from the start; a name that
    this machine cannot follow is an ImportError.
    """

def use_isa(name: str) -> str:
    """Makes every later call of this process run on the named instruction set; the fastest is the default.

    Args:
        name: one of `available_isas()`.

    Returns:
        The name of the one before.

    Raises:
        ValueError: an unknown name, or an instruction set that this machine has not got.
    """

def set_threads(count: int) -> int:
    """Makes every later call of this process use at most `count` threads; no bit of any result depends on it.

    The default is the number of processors that this process may use; the environment variable RLKERNELS_THREADS sets
    another from the start. Small inputs are always worked on by the calling thread alone.

    Args:
        count: 1 to 1024.

    Returns:
        The number before.

    Raises:
        ValueError: `count` is out of range.
    """

def group_advantages(
    rewards: NDArray[_Float],
    group_size: int,
    *,
    scale: Literal["group", "batch", "none"] = "group",
    ddof: int = 1,
    eps: float = 1e-4,
    eps_mode: Literal["add", "inside", "threshold"] = "add",
    baseline: Literal["mean", "leave-one-out"] = "mean",
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float]:
    """Advantages A_i = (R_i - baseline_i) / divisor of prompt-major rewards; the defaults are TRL's choice.

    A NaN reward means "not scored": left out of every mean and std, its own advantage 0. A group whose scored rewards
    are all equal gives exactly 0. No NaN arises, with `eps` 0 neither: a group that is not constant has a positive std.
    Sources: DeepSeekMath (arXiv 2402.03300, eq. 3), Dr. GRPO (arXiv 2503.20783), RLOO (arXiv 2402.14740).

    Args:
        rewards: shape (B,), float32 or float64; `group_size` rewards of one prompt after the other.
        group_size: completions per prompt, at least 1, at least 2 with "leave-one-out".
        scale: divide by the std of the group, of all scored rewards of the batch, or by 1.
        ddof: the variance divides by n - ddof, 0 or 1; n counts scored rewards.
        eps: finite and at least 0; rounded once to the data's type.
        eps_mode: "add" std + eps; "inside" sqrt(var + eps); "threshold" std, and advantages 0 where std < eps.
        baseline: the mean of the group, or the mean of the others in it.
        out: where the result goes.

    Returns:
        Shape (B,), the type of `rewards`. The error is at most k * 2u * max|R_g| / divisor, k = 4 for float32, 8 for
        float64, u the unit roundoff.

    Raises:
        TypeError: `rewards` is no array of float32 or float64.
        ValueError: empty or infinite rewards, a length that `group_size` does not divide, an unknown or illegal option.
    """

@overload
def token_kl(
    policy: NDArray[_Float],
    reference: NDArray[_Float],
    *,
    estimator: Literal["k1", "k2", "k3"],
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
    reduction: Literal["none"] = "none",
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float]: ...
@overload
def token_kl(
    policy: NDArray[_Float],
    reference: NDArray[_Float],
    *,
    estimator: Literal["k1", "k2", "k3"],
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
    reduction: Literal["none", "sum", "mean"] = "none",
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | _Float:
    """KL(policy || reference) from samples of the policy, with d = reference - policy.

    k1 = -d, k2 = d**2 / 2, k3 = exp(d) - 1 - d (Schulman, "Approximating KL Divergence", 2020). k3 is the series
    d**2/2! + d**3/3! + ... for |d| <= 2. The relative error is at most k * 2u, k = 4 for float32, 8 for float64, of
    every token; results below the normal range aside.

    An overflow gives +inf (k1: with its sign). A NaN on a token gives the positive quiet NaN, and so do two equal
    infinities. If only the policy is -inf then k1 = -inf and k2 = k3 = +inf; if only the reference is, all are +inf.
    Slots that are no tokens are never used, whatever they hold.

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64.
        reference: the same shape and type.
        estimator: "k1", "k2" or "k3".
        mask: bool, the same shape; True on tokens.
        lengths: integers. (B, T): shape (B,), the first `lengths[i]` slots of row i are tokens. (T,): ragged sequences
            one after the other, `lengths` adds up to T.
        reduction: "none" one value per slot, exactly 0 where no token is; "sum" or "mean" over the tokens of a sequence.
        out: where the result goes; of shape () where the result would be a scalar.

    Returns:
        The type of `policy`. "none": its shape. Otherwise one value per sequence: shape (B,), or a NumPy scalar for
        shape (T,) without `lengths`; 0 for a sequence without tokens.

    Raises:
        TypeError: not arrays of one float type, a mask not bool, lengths not integer.
        ValueError: shapes that differ, `mask` and `lengths` together, a length out of range, an unknown option.
    """

def importance_ratio(
    policy: NDArray[_Float],
    old: NDArray[_Float],
    *,
    level: Literal["token", "seq_mean", "seq_sum"],
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | _Float:
    """Importance ratios are exp(policy - old) of a token, of the mean over a sequence or of the sum over it.

    The error is at most k * 2u * |r|, of a sequence's k * 2u * |r| * (1 + u * sum |policy - old|), k = 4 for float32, 8
    for float64; results below the normal range aside. An overflow gives +inf; a NaN on a token, or two equal infinities,
    the positive quiet NaN. Slots that are no tokens are never used, whatever they hold.
    Sources: PPO (arXiv 1707.06347); GSPO (arXiv 2507.18071, eq. 7) for "seq_mean"; RLOO (arXiv 2402.14740) for "seq_sum".

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64.
        old: the same shape and type: the ratio's denominator.
        level: whose ratio.
        mask: bool, the same shape; True on tokens.
        lengths: as in `token_kl`.
        out: see the module.

    Returns:
        The type of `policy`. "token": its shape, exactly 0 where no token is. Otherwise one value per sequence, shape
        (B,), or a NumPy scalar for shape (T,) without `lengths`; 1 for a sequence without tokens.

    Raises:
        TypeError: not arrays of one float type, a mask not bool, lengths not integer.
        ValueError: shapes that differ, `mask` and `lengths` together, a length out of range, an unknown level.
    """

def importance_weights(
    old: NDArray[_Float],
    sampling: NDArray[_Float],
    *,
    correction: Literal["tis", "mis"],
    level: Literal["token", "seq_sum"],
    c_min: float | None = None,
    c_max: float,
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | _Float:
    """Off-policy weights are ratios exp(old - sampling), clamped to their bounds (TIS) or kept inside them (MIS).

    MIS gives 0 outside; the bounds themselves are inside. A NaN in `sampling`, where the sampler recorded nothing,
    counts as a difference of 0. Accuracy and special values are those of `importance_ratio`.
    Sources: Yao et al. (2025), "Your efficient RL framework secretly brings you off-policy RL training" (TIS); TRL's
    `vllm_importance_sampling_mode` (MIS).

    Args:
        old: log-probabilities in nats of the trainer's behaviour policy, shape (T,) or (B, T), float32 or float64.
        sampling: the sampler's, the same shape and type; may be NaN.
        correction: "tis" or "mis".
        level: per token, or for differences summed over a sequence.
        c_min: lower bound, at least 0; None for none. Rounded to the data's type, as `c_max`.
        c_max: upper bound, finite and above 0.
        mask: as in `importance_ratio`.
        lengths: as in `token_kl`.
        out: see the module.

    Returns:
        As `importance_ratio`; a sequence without tokens has the ratio 1 before the correction.

    Raises:
        TypeError: as `importance_ratio`.
        ValueError: as `importance_ratio`; bounds out of order.
    """

def ratio_statistics(
    policy: NDArray[_Float],
    behaviour: NDArray[_Float],
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: NDArray[_Float] | None = None,
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
) -> dict[str, float]:
    """Eleven numbers say how far D = policy - behaviour has moved per token, eleven per sequence, and two more.

    With r = exp(D): "mean" of r, "max_abs" of D, "p99_abs" (the 0.99 quantile of |D|, interpolated linearly), "k3" (mean
    of r - 1 - D), "chi2" (mean of exp(2D) - 1), "ess_per_n" ((sum r)**2 / (n sum r**2), not clamped, safe from
    overflow), "mult_err" (mean of exp|D|), "outside_low" and "outside_high" (shares of r below 1 - epsilon_low and above
    1 + epsilon_high), "clipped_low" and "clipped_high" (those of them with a negative or a positive advantage; only with
    `advantages`). The same with the prefix "seq_sum_" for D summed over each sequence that has a token, and
    "min_sequence_ratio" and "max_sequence_ratio" of those. One pass over the data and the selection of the quantile.
    Overflows give inf. A NaN on a token makes the numbers that it reaches NaN, shares aside.
    Sources: ESS, Kong (1992); k3, Schulman (2020).

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64.
        behaviour: the same shape and type, of the policy that sampled.
        epsilon_low: finite and at least 0; rounded to the data's type, as `epsilon_high`.
        epsilon_high: finite and at least 0.
        advantages: shape (B,), the same type; only their signs are used.
        mask: as in `importance_ratio`.
        lengths: as in `token_kl`.

    Returns:
        The numbers by name. The error of a mean is at most k * 2u times the mean of its terms' sizes.

    Raises:
        TypeError: as `importance_ratio`.
        ValueError: as `importance_ratio`; no token at all.
    """

@final
class PolicyLoss:
    """What `policy_loss` returns.

    Attributes:
        loss: to be minimised; float64 whatever the data's type.
        gradient: d loss / d policy, the shape and type of `policy`, +0 where no token is.
        metrics: numbers for the log. "tokens", "sequences" (with a token); of the ratio that the algorithm uses
            "ratio_mean", "ratio_min", "ratio_max", "ratio_k3" (mean of r - 1 - log r), NaN without tokens; where the
            algorithm has bounds "outside_low" and "outside_high" (shares of tokens beyond them), "clipped_low" and
            "clipped_high" (those where the clip acts: a negative or a positive advantage, for "cispo" any) and with
            `delta` "clipped_delta"; with a KL term "kl" (mean of the estimate, before `kl_ratio` and `beta`). A row's
            ratio counts once for each of its tokens; gmpo's bounds are those of each token's difference.
    """

    @property
    def loss(self) -> float: ...
    @property
    def gradient(self) -> NDArray[Any]: ...
    @property
    def metrics(self) -> dict[str, float]: ...

def policy_loss(
    policy: NDArray[_Float],
    *,
    old: NDArray[_Float] | None = None,
    reference: NDArray[_Float] | None = None,
    advantages: NDArray[_Float],
    mask: NDArray[np.bool_] | None = None,
    lengths: NDArray[np.integer] | None = None,
    algorithm: Literal[
        "grpo",
        "dapo",
        "bnpo-trl",
        "dr_grpo",
        "gspo",
        "gspo-token",
        "rloo",
        "cispo",
        "sapo",
        "gmpo",
        "luspo",
    ],
    epsilon_low: float | None = None,
    epsilon_high: float | None = None,
    delta: float | None = None,
    beta: float = 0.0,
    kl_estimator: Literal["k1", "k2", "k3"] = "k3",
    kl_ratio: Literal["none", "token", "sequence"] = "none",
    max_length: int | None = None,
    micro_batches: Sequence[int] | NDArray[np.integer] | None = None,
    dapo_denominator: Literal["global", "group", "trl"] | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    weights: NDArray[_Float] | None = None,
    cispo_bound: Literal["relative", "absolute"] | None = None,
    sapo_temperature_positive: float | None = None,
    sapo_temperature_negative: float | None = None,
    out: NDArray[_Float] | None = None,
) -> PolicyLoss:
    """The loss of a step is sum_i a_i sum_t (w l + beta KL), returned with its gradient from one pass.

    With r = exp(policy - old) of a token, its geometric mean over the row (the mean ratio) or its product:

    - "grpo", "dapo", "bnpo-trl", "dr_grpo": l = -min(min(r, delta) A, clip(r, 1 - epsilon_low, 1 + epsilon_high) A);
    - "gspo", "luspo": the same of the mean ratio; "gspo-token": of stop(mean ratio) exp(policy - stop(policy));
    - "rloo": l = -r A of the product; "cispo": l = -stop(min(r, c)) A policy of the token's r;
    - "sapo": l = -(4 / tau) sigma(tau (r - 1)) A of the token's r;
    - "gmpo": l = -r A of the mean ratio of differences held at most epsilon_high (A > 0) or at least -epsilon_low.

    The row's weight a_i, n_i its tokens, is 1 / (B n_i), a loss of the row being repeated on its tokens; 1 / B for
    "luspo"; 1 / (B max_length) for "dr_grpo"; 1 / (blocks * tokens of the block) for "bnpo-trl" (blocks are
    `micro_batches`), "dapo" and "cispo" ("global": one block, "group": a prompt's rows; "trl": 1 / tokens_in_step).
    A clip acts only strictly outside its bound. A row without tokens adds 0 and counts in B. The gradient's error is at
    most k * 2u * (|policy part| + |KL part|), the loss's k * 2u * sum|terms| / denominator, k = 4 for float32, 8 for
    float64. An overflowing ratio is +inf: harmless where a clip holds it or A w is 0; +inf and -inf add up to NaN.
    Sources: arXiv 2402.03300 (GRPO), 2503.14476 (DAPO), 2503.20783 (Dr. GRPO), 2507.18071 (GSPO), 2402.14740 (RLOO),
    2506.13585 (CISPO), 2511.20347 (SAPO), 2507.20673 (GMPO), 2602.05261 (LUSPO), 2505.07291 (delta); TRL ("bnpo-trl").

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64: the variable of the gradient.
        old: the behaviour policy's, constant; None is on-policy: every ratio is 1, with its gradient alive.
        reference: the reference model's; not read where `beta` is 0.
        advantages: A, shape (B,); or the shape of `policy`, but for "gspo", "rloo", "gmpo" and "luspo".
        mask: as in `importance_ratio`.
        lengths: as in `token_kl`.
        algorithm: one of the above. A parameter below that it does not read must be None.
        epsilon_low: finite and at least 0; for all but "rloo", "sapo" and "cispo". Rounded to the data's type, as
            `epsilon_high`, `delta`, `beta` and the temperatures.
        epsilon_high: finite and at least 0; for all but "rloo" and "sapo". See `cispo_bound`.
        delta: upper bound of r where A < 0, above 1 + epsilon_high; None for none. Clipped ratios only.
        beta: weight of the KL term, at least 0; must be 0 for "rloo", whose KL is in the reward.
        kl_estimator: as in `token_kl`; with `kl_ratio` not read where `beta` is 0.
        kl_ratio: what multiplies the estimate, unclipped and differentiated: the token's ratio, the mean ratio or 1.
        max_length: "dr_grpo": the configured constant, in tokens.
        micro_batches: "bnpo-trl": the rows of each micro-batch, in order.
        dapo_denominator: "dapo" and "cispo", which need it.
        group_size: rows per prompt, for the denominator "group".
        tokens_in_step: above 0, for the denominator "trl": tokens of the generation batch times this window's share.
        weights: off-policy weights w, of the shapes of `advantages`, constant; they leave the KL alone. None for 1.
        cispo_bound: "cispo": c is 1 + epsilon_high ("relative", MiniMax-M1) or epsilon_high ("absolute", TRL).
        sapo_temperature_positive: "sapo": tau where A > 0; None for 1.0.
        sapo_temperature_negative: "sapo": tau elsewhere; None for 1.05.
        out: takes the gradient; see the module.

    Returns:
        `PolicyLoss`.

    Raises:
        TypeError: as `importance_ratio`.
        ValueError: as `importance_ratio`; no rows or slots, a parameter that is missing, out of range or not read, a
            value of a token that is not finite.
    """

def pack_sequences(lengths: NDArray[np.integer], max_length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Packs sequences first-fit-decreasing: longest first, each into the first bin that has room; O(n log n).

    Equal lengths keep their original order. A sequence of length 0 takes no room and goes into the first bin.

    Args:
        lengths: shape (N,), integers, in tokens.
        max_length: the room of a bin in tokens, at least 1.

    Returns:
        `indices` (N,), the sequences bin after bin, and `offsets` (bins + 1,): bin b is
        `indices[offsets[b]:offsets[b + 1]]`. No lengths give no bins: `offsets` is [0].

    Raises:
        TypeError: `lengths` is no array of integers.
        ValueError: `max_length` below 1, or a length below 0 or above `max_length`, with its index.
    """
