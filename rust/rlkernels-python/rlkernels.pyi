"""Kernels of LLM reinforcement-learning post-training, written in Rust.

Arrays are those of NumPy, and of any library that offers DLPack for memory that the CPU reads: torch's CPU tensors, MLX
arrays (one that is still lazy is evaluated by the call). An array is read in place, however large, where it is
C-contiguous, aligned and of native byte order; otherwise it is copied once, up to 2**31 elements. At most 8 dimensions.
Where the meaning is plain, more is taken: lists and tuples of numbers (of the other arguments' type, else float64), what
`numpy.asarray` makes an array of (a pandas Series), masks of 0 and 1, integer and boolean rewards (as float64), float16 and
bfloat16 log-probabilities (as the float32 numbers that they are), `-` and `_` for each other in names. Nothing else is converted silently:
another element type is a `TypeError` that names the remedy, a wrong value a `ValueError` that shows it. A masked array, a
tensor on a GPU or one that requires grad is refused, with the call that helps.

`out` is a NumPy array of the result's shape and type that is C-contiguous, writeable and shares no memory with an
input; it is returned. After an error it holds anything.

float32 data is computed in float64 and rounded once; float64 data uses error-free differences and compensated sums.

Ctrl-C acts when a call ends: no call stops midway, and the longest take as long as their arrays ask for.

Large inputs are worked on without the GIL. As with NumPy's own functions, keeping other threads from writing to an input
or to `out` meanwhile is the caller's business: the result would be meaningless, or a `RuntimeError` says so. Results never depend on how many
threads call at once. Interpreters without a GIL are not supported: the wheel does not load there.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, SupportsIndex, TypeAlias, TypedDict, TypeVar, final, overload

import numpy as np
from numpy.typing import NDArray

class SupportsDLPack(Protocol):
    """An array of any library in the CPU's memory: NumPy, torch, MLX; exists in this stub only."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class SupportsArray(Protocol):
    """What numpy.asarray makes an array of, as a pandas Series; exists in this stub only."""

    def __array__(self, *args: Any, **kwargs: Any) -> NDArray[Any]: ...

__version__: str

_Float = TypeVar("_Float", np.float32, np.float64)
# Which element types an argument may have stands in its description: a checker does not see those of other libraries.
_Foreign: TypeAlias = SupportsDLPack | SupportsArray
_List: TypeAlias = Sequence[float] | Sequence[Sequence[float]]
_Numbers: TypeAlias = _Foreign | _List
_Mask: TypeAlias = _Numbers
_Integers: TypeAlias = _Foreign | Sequence[SupportsIndex] | Sequence[Sequence[SupportsIndex]]
_Single: TypeAlias = NDArray[np.float32] | Any  # Any: a NumPy scalar in place of an array of shape ()
_Double: TypeAlias = NDArray[np.float64] | Any

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
        instruction sets found at run time; `isa`, the one in use; `threads` that one kernel call uses; `cpus` that this
        process may use.
    """

def available_isas() -> list[str]:
    """The instruction sets of this machine for which the kernels are compiled, slowest first: "scalar", "avx2", ...

    Every one of them gives the same bits. The environment variable RLKERNELS_ISA forces one from the start; a name that
    this machine cannot follow is an ImportError.
    """

def use_isa(isa: str) -> str:
    """Makes every later call of this process run on the named instruction set; the fastest is the default.

    Args:
        isa: one of `available_isas()`.

    Returns:
        The name of the one before.

    Raises:
        ValueError: an unknown name, or an instruction set that this machine has not got.
    """

def set_threads(threads: int) -> int:
    """Makes every later call of this process use at most so many threads; no bit of any result depends on it.

    The default is the number of processors that this process may use; the environment variable RLKERNELS_THREADS sets
    another from the start. Small inputs are always worked on by the calling thread alone. The others stay awake for the
    next call for 0.1 ms.

    Args:
        threads: 1 to 1024.

    Returns:
        The number before.

    Raises:
        TypeError: `threads` is no integer.
        ValueError: `threads` is out of range.
    """

@overload
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
) -> NDArray[_Float]: ...
@overload
def group_advantages(
    rewards: NDArray[np.integer | np.bool] | Sequence[float],
    group_size: int,
    *,
    scale: Literal["group", "batch", "none"] = "group",
    ddof: int = 1,
    eps: float = 1e-4,
    eps_mode: Literal["add", "inside", "threshold"] = "add",
    baseline: Literal["mean", "leave-one-out"] = "mean",
    out: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]: ...
@overload
def group_advantages(
    rewards: _Numbers,
    group_size: int,
    *,
    scale: Literal["group", "batch", "none"] = "group",
    ddof: int = 1,
    eps: float = 1e-4,
    eps_mode: Literal["add", "inside", "threshold"] = "add",
    baseline: Literal["mean", "leave-one-out"] = "mean",
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Advantages A_i = (R_i - baseline_i) / divisor of prompt-major rewards; the defaults are TRL's choice.

    A NaN reward means "not scored": left out of every mean and std, its own advantage 0. A group whose scored rewards
    are all equal gives exactly 0. No NaN arises, with `eps` 0 neither: a group that is not constant has a positive std.
    Sources: DeepSeekMath (arXiv 2402.03300, eq. 3), Dr. GRPO (arXiv 2503.20783), RLOO (arXiv 2402.14740).

    Args:
        rewards: shape (B,), float32, float64, integers or booleans; `group_size` rewards of one prompt after the other.
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
        TypeError: `rewards` holds no numbers.
        ValueError: empty or infinite rewards, a length that `group_size` does not divide, an unknown or illegal option.
    """

@overload
def normalise_then_sum(
    rewards: NDArray[_Float],
    weights: _Numbers,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float]: ...
@overload
def normalise_then_sum(
    rewards: _Numbers,
    weights: _Numbers,
    group_size: int,
    *,
    group_ddof: int,
    group_eps: float,
    batch_ddof: int,
    batch_eps: float,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Advantages of several reward functions: each normalised in its group, their weighted sum over the batch.

    Column f gives z = (R - mean of its group) / (std + group_eps), row i the sum y_i of `weights[f] * z[i, f]`, and the
    advantage is (y_i - mean) / (std + batch_eps) over the batch. A NaN reward counts 0 in its row's sum; a row is
    unscored, with advantage 0, only if all its rewards are NaN. Sums that are all the same give exactly 0.
    Source: GDPO (arXiv 2601.05242).

    Args:
        rewards: shape (B, F), float32 or float64, one column per reward function, prompt-major.
        weights: shape (F,), the type of `rewards`, finite.
        group_size: completions per prompt, at least 1; divides B.
        group_ddof: 0 or 1: the group's variance divides by n - ddof.
        group_eps: added to the group's std; finite and at least 0, rounded once to the data's type.
        batch_ddof: as `group_ddof`, of the batch.
        batch_eps: as `group_eps`, of the batch.
        out: where the result goes.

    Returns:
        Shape (B,), the type of `rewards`, computed in float64.

    Raises:
        TypeError: not arrays of one float type.
        ValueError: no rewards, shapes that do not fit, infinite rewards or weights, an illegal option.
    """

@overload
def gae(
    rewards: _Numbers,
    values: NDArray[_Float],
    *,
    gamma: float,
    lam: float,
    bootstrap: _Numbers | None = None,
    terminal: _Mask | None = None,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float]: ...
@overload
def gae(
    rewards: _Numbers,
    values: _Numbers,
    *,
    gamma: float,
    lam: float,
    bootstrap: _Numbers | None = None,
    terminal: _Mask | None = None,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """Generalised advantage estimates of the tokens of each row.

    With t+ the next token of the row, `delta[t] = rewards[t] + gamma * (1 - terminal[t]) * values[t+] - values[t]` and
    `A[t] = delta[t] + gamma * lam * (1 - terminal[t]) * A[t+]`. After the last token the value is the row's `bootstrap` and
    A is 0. Slots without a token are skipped, not stepped through, and get 0 whatever they hold.
    Source: J. Schulman et al. (arXiv 1506.02438, eq. 16).

    Args:
        rewards: shape (B, T), or (N,): one row, or with `lengths` rows one after the other; integers, or of the type of
            `values`.
        values: the critic's estimates before each token, of the same shape; float32 or float64.
        gamma: the discount, between 0 and 1.
        lam: the decay of the trace, between 0 and 1.
        bootstrap: shape (B,), the type of `values`: the estimate after each row's last token. Default: 0.
        terminal: the shape of `rewards`: the episode ends with this token. Default: nowhere.
        mask: the shape of `rewards`, true on tokens. Not together with `lengths`.
        lengths: shape (B,): the first `lengths[b]` slots of row b are tokens.
        out: where the result goes.

    Returns:
        The shape and type of `values`, computed in twice the precision of float64 and rounded once.

    Raises:
        TypeError: not arrays of one float type, or a mask that holds no truths.
        ValueError: shapes that do not fit, `gamma` or `lam` outside [0, 1].
    """

@overload
def token_kl(
    policy: NDArray[_Float],
    reference: _Numbers,
    *,
    estimator: Literal["k1", "k2", "k3"],
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    reduction: Literal["none"] = "none",
    old: _Numbers | None = None,
    kl_ratio: Literal["none", "token", "sequence"] = "none",
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float]: ...
@overload
def token_kl(
    policy: NDArray[_Float],
    reference: _Numbers,
    *,
    estimator: Literal["k1", "k2", "k3"],
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    reduction: Literal["sum", "mean"],
    old: _Numbers | None = None,
    kl_ratio: Literal["none", "token", "sequence"] = "none",
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | Any: ...
@overload
def token_kl(
    policy: _Numbers,
    reference: _Numbers,
    *,
    estimator: Literal["k1", "k2", "k3"],
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    reduction: Literal["none", "sum", "mean"] = "none",
    old: _Numbers | None = None,
    kl_ratio: Literal["none", "token", "sequence"] = "none",
    out: NDArray[Any] | None = None,
) -> NDArray[Any] | Any:
    """KL(policy || reference) from samples of the policy, with d = reference - policy.

    k1 = -d, k2 = d**2 / 2, k3 = exp(d) - 1 - d (Schulman, "Approximating KL Divergence", 2020). k3 is the series
    d**2/2! + d**3/3! + ... for |d| <= 2. The relative error is at most k * 2u, k = 4 for float32, 8 for float64, of
    every token; results below the normal range aside.

    An overflow gives +inf (k1: with its sign). A NaN on a token gives the positive quiet NaN, and so do two equal
    infinities, and an estimate of 0 under an infinite ratio. If only the policy is -inf then k1 = -inf and k2 = k3 = +inf; if only the reference is, all are +inf.
    Slots that are no tokens are never used, whatever they hold.

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64.
        reference: the same shape and type.
        estimator: "k1", "k2" or "k3".
        mask: bool, or the numbers 0 and 1, the same shape; True on tokens.
        lengths: integers. (B, T): shape (B,), the first `lengths[i]` slots of row i are tokens. (T,): ragged sequences
            one after the other, `lengths` adds up to T.
        reduction: "none" one value per slot, exactly 0 where no token is; "sum" or "mean" over the tokens of a sequence.
        old: log-probabilities under the policy that drew the tokens, the same shape and type; None where that is
            `policy` itself, whose ratios are 1.
        kl_ratio: multiplies every estimate by "none" 1, "token" exp(policy - old) of the token, "sequence"
            exp(mean of policy - old) over the tokens of its sequence.
        out: where the result goes; of shape () where the result would be a scalar.

    Returns:
        The type of `policy`. "none": its shape. Otherwise one value per sequence: shape (B,), or a NumPy scalar for
        shape (T,) without `lengths`; 0 for a sequence without tokens.

    Raises:
        TypeError: not arrays of one float type, a mask not bool, lengths not integer.
        ValueError: shapes that differ, `mask` and `lengths` together, a length out of range, an unknown option.
    """

@overload
def full_kl(
    policy_logprobs: NDArray[_Float],
    reference_logprobs: _Numbers,
    *,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | Any: ...
@overload
def full_kl(
    policy_logprobs: _Numbers,
    reference_logprobs: _Numbers,
    *,
    out: NDArray[Any] | None = None,
) -> NDArray[Any] | Any:
    """KL(policy || reference) = sum_v p_v (log p_v - log q_v) over the whole vocabulary.

    A token that the policy cannot draw (-inf) adds 0, whatever the reference; one that it can and the reference cannot
    makes the sum +inf. Any other NaN gives the positive quiet NaN. Source: Kullback and Leibler (1951), eq. 2.4.

    Args:
        policy_logprobs: normalised log-probabilities in nats, shape (..., V), V at least 1, float32 or float64.
        reference_logprobs: the same shape and type.
        out: where the result goes; of shape () where the result would be a scalar.

    Returns:
        Shape (...), the type of `policy_logprobs`; a NumPy scalar for shape (V,). The error is at most k * 2u times the
        sum of the absolute terms, k = 4 for float32, 8 for float64.

    Raises:
        TypeError: not arrays of one float type.
        ValueError: shapes that differ, or no vocabulary.
    """

@overload
def selective_log_softmax(
    logits: NDArray[np.float64],
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[False] = False,
    ignore_index: int | None = None,
) -> _Double: ...
@overload
def selective_log_softmax(
    logits: NDArray[np.float64],
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[True],
    ignore_index: int | None = None,
) -> tuple[_Double, _Double]: ...
@overload
def selective_log_softmax(
    logits: NDArray[np.float16 | np.float32],
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[False] = False,
    ignore_index: int | None = None,
) -> _Single: ...
@overload
def selective_log_softmax(
    logits: NDArray[np.float16 | np.float32],
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[True],
    ignore_index: int | None = None,
) -> tuple[_Single, _Single]: ...
@overload
def selective_log_softmax(
    logits: _Numbers,
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[False] = False,
    ignore_index: int | None = None,
) -> NDArray[Any] | Any: ...
@overload
def selective_log_softmax(
    logits: _Numbers,
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: Literal[True],
    ignore_index: int | None = None,
) -> tuple[NDArray[Any] | Any, NDArray[Any] | Any]: ...
@overload
def selective_log_softmax(
    logits: _Numbers,
    ids: _Integers,
    *,
    temperature: float = 1.0,
    entropy: bool = False,
    ignore_index: int | None = None,
) -> NDArray[Any] | tuple[NDArray[Any] | Any, NDArray[Any] | Any] | Any:
    """The log-probability of each row's tokens, x_id / tau - log sum_v exp(x_v / tau), and its distribution's entropy.

    The logits are read once, in place, and nothing of their size is stored. float16, bfloat16 and float32 are computed in
    float32 with the exponent carried apart and summed in float64. A logit of -inf is a token of probability 0: -inf where
    it is chosen, nothing in the entropy. A row that holds NaN or +inf, or nothing but -inf, gives NaN. A log-probability
    is never above 0, an entropy never below.

    Args:
        logits: shape (..., V), V at least 1; float16, bfloat16 (ml_dtypes, torch, MLX), float32 or float64.
        ids: shape (...), or (..., K) for K tokens of each position; integers in [0, V).
        temperature: tau, finite and above 0; rounded once to the result's type.
        entropy: whether to return the entropies too.
        ignore_index: an id that stands where no token is, such as -100: its log-probability is 0. A row of nothing else
            is not read, and its entropy is 0. None for none.

    Returns:
        The shape of `ids`, in nats: float64 for float64 logits, float32 otherwise; NumPy scalars for shape (). With
        `entropy` (logprobs, entropies), the entropies of shape (...). The error of a log-probability is at most k * 2u * (|x_id - M| / tau + max(1, log sum_v
        exp((x_v - M) / tau))), M the row's maximum, that of an entropy H k * 2u * max(1, H); k = 4, u = 2**-24 for
        float32, k = 8, u = 2**-53 for float64.

    Raises:
        TypeError: not arrays of these types.
        ValueError: shapes that do not fit, no vocabulary, an id outside it (with its index, rows counted in C order), a
            temperature that is not finite and above 0.
    """

def selective_log_softmax_backward(
    logits: _Numbers,
    ids: _Integers,
    grad_logprobs: _Numbers,
    *,
    temperature: float = 1.0,
    grad_entropy: _Numbers | None = None,
    ignore_index: int | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any]:
    """The gradient for the logits: (g * (onehot(id) - p) - g_H * p * (log p + H)) / tau, streamed.

    With K ids of a row the first term is a sum over them. A row whose every g and g_H are 0 gets exactly 0 and is not read: masked tokens may hold anything. A logit of -inf that is
    not chosen gets exactly 0. A row that holds NaN or +inf, or nothing but -inf, or whose g / tau or g_H / tau is not
    finite, gets NaN. Source: the chain rule on the definitions of `selective_log_softmax`.

    Args:
        logits: as for `selective_log_softmax`.
        ids: as for `selective_log_softmax`.
        grad_logprobs: g, shape of `ids`; float64 for float64 logits, float32 otherwise.
        temperature: as for `selective_log_softmax`.
        grad_entropy: g_H, shape (...), the same type; 0 where it is not given.
        ignore_index: as for `selective_log_softmax`; it sends no gradient back, and a row of nothing else gets 0.
        out: where the gradient goes; not for bfloat16.

    Returns:
        Shape and type of `logits`, half types rounded to nearest, ties to even; bfloat16 as the type of the package
        ml_dtypes. Before that rounding the error is at most k * 2u * (sum |g| * (|[v = id] - p| + p * c) + |g_H| * p *
        ((1 + c) * |log p + H| + c + max(1, H))) / tau, subnormal results aside; c = (M - x_v) / tau + max(1, log sum
        exp((x - M) / tau)), and M, k and u are those of `selective_log_softmax`.

    Raises:
        TypeError: not arrays of these types, or bfloat16 without the package ml_dtypes.
        ValueError: as `selective_log_softmax`, or gradients of another shape.
    """

@overload
def pack_sequences(
    lengths: _Integers,
    max_length: int,
    *,
    strategy: Literal["first-fit-decreasing", "best-fit-decreasing", "wrapped"] = "first-fit-decreasing",
    over_long: Literal["split"],
) -> tuple[NDArray[np.int64], NDArray[np.int64], float, NDArray[np.int64], NDArray[np.int64]]: ...
@overload
def pack_sequences(
    lengths: _Integers,
    max_length: int,
    *,
    strategy: Literal["first-fit-decreasing", "best-fit-decreasing"] = "first-fit-decreasing",
    over_long: Literal["error", "truncate"] = "error",
) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
    """Packs sequences into bins: longest first, each into the bin with room that the strategy names; O(n log n).

    "first-fit-decreasing": the first bin opened. "best-fit-decreasing": the fullest bin, of equally full ones the first
    opened. Where none has room a new one is opened. Equal lengths keep their original order. A sequence of length 0
    takes no room: it goes into the first bin, or into the fullest. Source: Johnson (1973), "Near-optimal bin packing
    algorithms".

    With `over_long="split"` no token is lost, and bins hold pieces of sequences. A decreasing fit cuts each sequence
    after every `max_length` tokens and packs the pieces as sequences: TRL's "bfd_split", but for the choice among
    equally full bins. "wrapped" writes the sequences one after the other and cuts where bins end: TRL's "wrapped". A
    sequence without tokens has no piece.

    Args:
        lengths: shape (N,), integers, in tokens.
        max_length: the room of a bin in tokens, at least 1.
        strategy: which bin among those with room; "wrapped" needs `over_long="split"`.
        over_long: what becomes of a sequence longer than a bin: an error; it counts as `max_length` tokens, and cutting
            it is the caller's business ("truncate"); or pieces ("split").

    Returns:
        `indices` (N,), the sequences bin after bin, and `offsets` (bins + 1,): bin b is
        `indices[offsets[b]:offsets[b + 1]]`. No lengths give no bins: `offsets` is [0]. Last `efficiency`, the tokens
        kept over bins * max_length, 1.0 for no bins. With "split" indices are the sequences of the pieces, and two
        more arrays follow, `starts` and `sizes`: piece j is the tokens `starts[j]` to `starts[j] + sizes[j]` of sequence
        `indices[j]`.

    Raises:
        TypeError: `lengths` is no array of integers.
        ValueError: `max_length` below 1; a length below 0, or above `max_length` without "truncate", with its index; an
            unknown option.
    """

def philox4x32_10(counter: _Integers, key: _Integers) -> NDArray[np.uint32]:
    """Philox 4x32-10 maps a counter of four words and a key of two to four words that look random.

    Source: Salmon et al. (2011), "Parallel random numbers: as easy as 1, 2, 3", section 3.3.

    Args:
        counter: shape (..., 4), integers in [0, 2**32).
        key: shape (..., 2), integers in [0, 2**32); leading axes broadcast with those of `counter`.

    Returns:
        Shape (..., 4).

    Raises:
        TypeError: no arrays of integers.
        ValueError: a word outside its range, or shapes that do not fit.
    """

def uniforms(
    seed: SupportsIndex,
    round_: SupportsIndex | _Integers,
    prompt: SupportsIndex | _Integers,
    sample: SupportsIndex | _Integers,
    token: SupportsIndex | _Integers,
) -> NDArray[np.float64] | Any:
    """The uniform of token t of sample j of prompt i, the same in every batch and every order.

    Philox with key = (seed mod 2**32, seed div 2**32) and counter = (token, sample, prompt, round) gives the words
    w0 ... w3; u = floor((w0 * 2**32 + w1) / 2**11) / 2**53.

    Args:
        seed: in [0, 2**64).
        round_: in [0, 2**32), increasing with every rollout, resamples included. This and the next three are integers
            or arrays of integers and broadcast against each other.
        prompt: the prompt's stable index in the data.
        sample: the completion's index within its prompt.
        token: the token's index within its completion.

    Returns:
        In [0, 1), multiples of 2**-53; a NumPy scalar where all four are numbers.

    Raises:
        TypeError: no integers.
        ValueError: a number outside its range, or shapes that do not broadcast.
    """

def xtc_coins(
    seed: SupportsIndex,
    round_: SupportsIndex | _Integers,
    prompt: SupportsIndex | _Integers,
    sample: SupportsIndex | _Integers,
    token: SupportsIndex | _Integers,
) -> NDArray[np.float64] | Any:
    """The coin that decides whether XTC acts on a draw: as `uniforms`, of words 2 (high) and 3 of the same counter.

    Args:
        seed: as in `uniforms`.
        round_: as in `uniforms`.
        prompt: as in `uniforms`.
        sample: as in `uniforms`.
        token: as in `uniforms`.

    Returns:
        In [0, 1), multiples of 2**-53; a NumPy scalar where all four are numbers.

    Raises:
        TypeError: no integers.
        ValueError: a number outside its range, or shapes that do not broadcast.
    """

@overload
def filtered_logprobs(
    logits: _Numbers,
    *,
    order: Literal["hf", "mlx-lm"],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_coin: _Numbers | None = None,
    repetition_penalty: float = 1.0,
    history: _Integers | None = None,
    ties: Literal["library", "all", "lower-id"] = "library",
    min_tokens_to_keep: int = 1,
    xtc_special_tokens: _Integers | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    generated: _Integers | None = None,
    logit_bias: _Numbers | Mapping[int, float] | None = None,
    out: NDArray[_Float],
) -> NDArray[_Float]: ...
@overload
def filtered_logprobs(
    logits: _Numbers,
    *,
    order: Literal["hf", "mlx-lm"],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_coin: _Numbers | None = None,
    repetition_penalty: float = 1.0,
    history: _Integers | None = None,
    ties: Literal["library", "all", "lower-id"] = "library",
    min_tokens_to_keep: int = 1,
    xtc_special_tokens: _Integers | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    generated: _Integers | None = None,
    logit_bias: _Numbers | Mapping[int, float] | None = None,
    out: None = None,
) -> NDArray[np.float64]:
    """The log-probabilities that the filters leave, each filter on the distribution renormalised over the survivors.

    "hf": penalties, temperature, top-k, top-p, min-p, XTC. "mlx-lm": penalties, then on the
    untempered distribution top-p, min-p, XTC, top-k, and the temperature last. Temperature 0 puts all mass on the
    lowest id of the maximum of the penalised logits; no other filter acts. All is computed in float64, whatever the
    logits' type; no row is sorted. Each thread of a call uses scratch memory of about 40 bytes per token of the
    vocabulary. It is given back when the call ends, but for up to 8 MiB that the calling thread keeps for its next call.

    Args:
        logits: shape (B, V), float16, bfloat16, float32 or float64; finite, or -inf for a token that cannot be drawn.
        order: in which the filters act; the two keep different tokens.
        temperature: at least 0.
        top_k: keeps the k likeliest; 0 disables.
        top_p: keeps the smallest set of likeliest tokens whose mass reaches it, at least one token; in [0, 1], 1.0
            disables. Holtzman et al., arXiv 1904.09751.
        min_p: removes tokens below this share of the largest probability; in [0, 1], 0.0 disables. Nguyen et al.,
            arXiv 2407.01082.
        xtc_probability: how often XTC acts; in [0, 1], 0.0 disables.
        xtc_threshold: where it acts, XTC removes every token with a probability above, except the least likely of them.
        xtc_coin: shape (B,), in [0, 1): XTC acts on the rows whose coin is below `xtc_probability`.
        repetition_penalty: divides the logit of a token of `history` if positive, else multiplies it; above 0, 1.0
            disables. Keskar et al., arXiv 1909.05858, section 4.1.
        history: shape (B, H), ids of earlier tokens, -1 for none; an id that is there twice counts once.
        ties: which tokens stay of those as likely as the last one that top-k or top-p needs. "library": what the
            library of `order` keeps: "hf" all for top-k and the higher ids for top-p (an ascending sort, which is
            stable on CUDA above 4,096 tokens; on the CPU torch promises nothing), "mlx-lm" the lower ids for top-k and
            all for top-p. "all": so that no token that either library draws scores -inf. "lower-id": the lower ids.
        min_tokens_to_keep: the likeliest tokens that a filter leaves at least: in "hf" top-k, top-p and min-p each, in
            "mlx-lm" min-p alone, as in the libraries; at least 1.
        xtc_special_tokens: shape (S,), ids that XTC never removes, as in mlx-lm: those of a newline and an
            end-of-sequence token, say.
        presence_penalty: subtracted once from the logit of every token of `generated`; 0.0 disables. OpenAI's API.
        frequency_penalty: subtracted from the logit of a token as often as it is in `generated`; 0.0 disables.
        generated: shape (B, H), ids, -1 for none. vLLM counts the completion's tokens, mlx-lm the prompt's too.
        logit_bias: shape (V,), or a dict from ids to numbers, 0 for the others; finite or -inf, added to every row's
            logits first; then `repetition_penalty` acts, then the two other penalties, as in vLLM and mlx-lm.
        out: where the result goes, float64 or float32: half the memory, the nearest float32 of what float64 holds.

    Returns:
        `out`, else float64: shape (B, V), normalised; -inf for removed tokens.

    Raises:
        TypeError: arrays of other types.
        ValueError: a NaN or +inf logit or a row of -inf only, with its place; a parameter outside its range, or one
            that an active filter needs and that is missing; shapes that do not fit.
    """

def sample_tokens(
    logits: _Numbers,
    uniforms: _Numbers,
    *,
    order: Literal["hf", "mlx-lm"],
    temperature: float,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    xtc_probability: float = 0.0,
    xtc_threshold: float = 0.1,
    xtc_coin: _Numbers | None = None,
    repetition_penalty: float = 1.0,
    history: _Integers | None = None,
    ties: Literal["library", "all", "lower-id"] = "library",
    min_tokens_to_keep: int = 1,
    xtc_special_tokens: _Integers | None = None,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    generated: _Integers | None = None,
    logit_bias: _Numbers | Mapping[int, float] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The token of each row that its uniform draws from the filtered distribution, by inverse transform.

    The token is the least k with C_k > u * C_V, C the running sum of the probabilities in id order, in float64: never a
    removed token. Tokens do not depend on the batch, the threads or the instruction set. At temperature 0 it is the
    lowest id of the maximum of the penalised logits.

    Args:
        logits: as in `filtered_logprobs`, and so are the keywords.
        uniforms: shape (B,), in [0, 1), as from `rlkernels.uniforms`.
        order: as in `filtered_logprobs`.
        temperature: as in `filtered_logprobs`.
        top_k: as in `filtered_logprobs`.
        top_p: as in `filtered_logprobs`.
        min_p: as in `filtered_logprobs`.
        xtc_probability: as in `filtered_logprobs`.
        xtc_threshold: as in `filtered_logprobs`.
        xtc_coin: as in `filtered_logprobs`.
        repetition_penalty: as in `filtered_logprobs`.
        history: as in `filtered_logprobs`.
        ties: as in `filtered_logprobs`.
        min_tokens_to_keep: as in `filtered_logprobs`.
        xtc_special_tokens: as in `filtered_logprobs`.
        presence_penalty: as in `filtered_logprobs`.
        frequency_penalty: as in `filtered_logprobs`.
        generated: as in `filtered_logprobs`.
        logit_bias: as in `filtered_logprobs`.

    Returns:
        Tokens, shape (B,), and their log-probabilities after all filters, the behaviour policy's, shape (B,).

    Raises:
        TypeError: as `filtered_logprobs`.
        ValueError: as `filtered_logprobs`, or a uniform outside [0, 1).
    """

@overload
def importance_ratio(
    policy: NDArray[_Float],
    old: _Numbers,
    *,
    level: Literal["token", "seq_mean", "seq_sum"],
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | Any: ...
@overload
def importance_ratio(
    policy: _Numbers,
    old: _Numbers,
    *,
    level: Literal["token", "seq_mean", "seq_sum"],
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any] | Any:
    """Importance ratios are exp(policy - old) of a token, of the mean over a sequence or of the sum over it.

    The error is at most k * 2u * |r|, of a sequence's k * 2u * |r| * (1 + u * sum |policy - old|), k = 4 for float32, 8
    for float64; results below the normal range aside. An overflow gives +inf; a NaN on a token, or two equal infinities,
    the positive quiet NaN. Slots that are no tokens are never used, whatever they hold.
    Sources: PPO (arXiv 1707.06347); GSPO (arXiv 2507.18071, eq. 7) for "seq_mean"; RLOO (arXiv 2402.14740) for "seq_sum".

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64.
        old: the same shape and type: the ratio's denominator.
        level: whose ratio.
        mask: bool, or the numbers 0 and 1, the same shape; True on tokens.
        lengths: as in `token_kl`.
        out: see the module.

    Returns:
        The type of `policy`. "token": its shape, exactly 0 where no token is. Otherwise one value per sequence, shape
        (B,), or a NumPy scalar for shape (T,) without `lengths`; 1 for a sequence without tokens.

    Raises:
        TypeError: not arrays of one float type, a mask not bool, lengths not integer.
        ValueError: shapes that differ, `mask` and `lengths` together, a length out of range, an unknown level.
    """

@overload
def importance_weights(
    old: NDArray[_Float],
    sampling: _Numbers,
    *,
    correction: Literal["tis", "mis"],
    level: Literal["token", "seq_sum"],
    c_min: float | None = None,
    c_max: float,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[_Float] | None = None,
) -> NDArray[_Float] | Any: ...
@overload
def importance_weights(
    old: _Numbers,
    sampling: _Numbers,
    *,
    correction: Literal["tis", "mis"],
    level: Literal["token", "seq_sum"],
    c_min: float | None = None,
    c_max: float,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    out: NDArray[Any] | None = None,
) -> NDArray[Any] | Any:
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
    policy: _Numbers,
    behaviour: _Numbers,
    *,
    epsilon_low: float,
    epsilon_high: float,
    advantages: _Numbers | None = None,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
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

    `pickle` and `copy` make it again from these three.
    """

    def __init__(self, loss: float, gradient: NDArray[Any], metrics: dict[str, float]) -> None: ...
    @property
    def loss(self) -> float: ...
    @property
    def gradient(self) -> NDArray[Any]: ...
    @property
    def metrics(self) -> dict[str, float]: ...

def policy_loss(
    policy: _Numbers,
    *,
    old: _Numbers | None = None,
    reference: _Numbers | None = None,
    advantages: _Numbers,
    mask: _Mask | None = None,
    lengths: _Integers | None = None,
    row_mask: _Mask | None = None,
    algorithm: str,
    epsilon_low: float | None = None,
    epsilon_high: float | None = None,
    delta: float | None = None,
    beta: float = 0.0,
    kl_estimator: Literal["k1", "k2", "k3"] = "k3",
    kl_ratio: Literal["none", "token", "sequence"] = "none",
    max_length: int | None = None,
    micro_batches: _Integers | None = None,
    dapo_denominator: Literal["global", "group", "trl"] | None = None,
    group_size: int | None = None,
    tokens_in_step: float | None = None,
    weights: _Numbers | None = None,
    cispo_bound: Literal["relative", "absolute"] | None = None,
    sapo_temperature_positive: float | None = None,
    sapo_temperature_negative: float | None = None,
    out: NDArray[Any] | None = None,
) -> PolicyLoss:
    """The loss of a step is sum_i a_i sum_t (w l + beta KL), returned with its gradient from one pass.

    `algorithm` names l, the loss of a token by r = exp(policy - old), of its own, its row's geometric mean (the mean
    ratio) or its row's product, and a_i, what a token of row i weighs. A loss of the row is repeated on its tokens. The
    names, with their formulas and sources, are those of docs/definitions.md, "Policy losses by name", of the
    repository; the error for an unknown name lists them.

    A clip acts only strictly outside its bound. A row without tokens adds 0 and counts in B. The gradient's error is at
    most k * 2u * (|policy part| + |KL part|), the loss's k * 2u * sum|terms| / denominator, k = 4 for float32, 8 for
    float64. An overflowing ratio is +inf: harmless where a clip holds it or A w is 0; +inf and -inf add up to NaN.

    Args:
        policy: log-probabilities in nats, shape (T,) or (B, T), float32 or float64: the variable of the gradient.
        old: the behaviour policy's, constant; None is on-policy: every ratio is 1, with its gradient alive.
        reference: the reference model's; not read where `beta` is 0.
        advantages: A, shape (B,) or (B, 1); or the shape of `policy` where a row has more than one ratio.
        mask: as in `importance_ratio`.
        lengths: as in `token_kl`.
        row_mask: bool, or 0 and 1, shape (B,): a row where it is False has no tokens, as TRL's truncated completions: it
            adds 0 and counts in B. Not with `lengths` of flat rows.
        algorithm: the name of a loss, as "grpo"; TRL's "bnpo" is "bnpo-trl". A parameter below that it does not read
            must be None.
        epsilon_low: finite and at least 0; for clips with a lower bound. None: TRL's 0.2, or the algorithm's own: 3e-4
            for "gspo", "gspo-token" and "luspo", 0.4 for "gmpo". Rounded to the data's type, as `epsilon_high`, `delta`,
            `beta` and the temperatures.
        epsilon_high: finite and at least 0; for clips. None: `epsilon_low` where that is given, as in TRL; else 0.2, or
            the algorithm's own: 0.28 for "dapo" and for "cispo" ("relative" only), 4e-4 for "gspo", "gspo-token" and
            "luspo", 0.4 for "gmpo". See `cispo_bound`.
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
