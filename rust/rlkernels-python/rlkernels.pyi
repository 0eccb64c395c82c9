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

from typing import Literal, TypedDict, TypeVar, overload

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
