"""The request and the result of a rollout, the same for every path, and the bookkeeping of their rows."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gates_reference.trainer import sampling

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Request:
    """Rows of (prompt index, sample index) (R, 2) over encoded prompts, and how to draw their tokens.

    `samples` is larger than every sample index; if a prompt occurs twice in the rollout, it is larger than the group size. `limits`
    (R,) are the most tokens of each row, at most `max_tokens`; None means `max_tokens` for all. `kv_bits` stores keys and values of the
    paths `cached` and `prefix` in 8 or 4 bits; None keeps the model's own type.
    """

    prompts: list[NDArray[np.int32]]
    rows: NDArray[np.int64]
    samples: int
    max_tokens: int
    settings: sampling.Settings
    eos_ids: NDArray[np.int64]
    seed: int = 0
    round: int = 0
    record_logits: bool = False
    kv_bits: int | None = None
    limits: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        """Refuse rows outside the table, empty prompts and other values of `kv_bits`."""
        if self.kv_bits not in {None, 8, 4}:
            raise ValueError(f"kv_bits is {self.kv_bits}, must be 8, 4 or None")
        if self.max_tokens < 1 or self.samples < 1:
            raise ValueError(f"samples, max_tokens are {self.samples}, {self.max_tokens}, must be >= 1")
        limit = np.array([len(self.prompts), self.samples])
        if self.rows.ndim != 2 or self.rows.shape[1] != 2 or (self.rows < 0).any() or (self.rows >= limit).any():
            raise ValueError(f"rows must be (R, 2) pairs below {limit.tolist()}, found {self.rows.tolist()}")
        if self.limits is not None and (
            self.limits.shape != (len(self.rows),) or (self.limits < 1).any() or (self.limits > self.max_tokens).any()
        ):
            raise ValueError(
                f"limits must be (R,) from 1 to max_tokens = {self.max_tokens}, found {self.limits.tolist()}"
            )
        empty = [i for i, prompt in enumerate(self.prompts) if not len(prompt)]
        if empty:
            raise ValueError(f"prompts {empty} have no tokens, every prompt must have one")

    def most(self) -> NDArray[np.int64]:
        """Return the most tokens of each row (R,)."""
        return np.full(len(self.rows), self.max_tokens) if self.limits is None else self.limits


@dataclass(slots=True)
class Rollout:
    """The result of a rollout: tokens (R, T) with -1 past the end, and the records of every draw.

    `path` is the path that ran; `reason` says why it is not the requested one, "" if it is.
    """

    rows: NDArray[np.int64]
    tokens: NDArray[np.int32]
    lengths: NDArray[np.int64]
    ended: NDArray[np.bool_]
    uniforms: NDArray[np.float64]
    model: NDArray[np.float64]
    temperature_scaled: NDArray[np.float64]
    behaviour: NDArray[np.float64]
    logits: NDArray[np.float32] | None = field(default=None)
    path: str = ""
    reason: str = ""

    @classmethod
    def empty(cls, request: Request, path: str) -> "Rollout":
        """Return a table without tokens, to be filled by a path."""
        count, width = len(request.rows), request.max_tokens
        uniforms, model, temperature_scaled, behaviour = (np.zeros((count, width)) for _ in range(4))
        return cls(
            rows=request.rows,
            tokens=np.full((count, width), -1, np.int32),
            lengths=np.zeros(count, np.int64),
            ended=np.zeros(count, np.bool_),
            uniforms=uniforms,
            model=model,
            temperature_scaled=temperature_scaled,
            behaviour=behaviour,
            path=path,
        )

    def record(
        self,
        rows: NDArray[np.int64],
        step: int,
        logits: NDArray[np.float32],
        u: NDArray[np.float64],
        drawn: sampling.Drawn,
        *,
        keep: bool,
    ) -> None:
        """Record what was drawn at `step` for these rows, with `keep` the logits too."""
        self.tokens[rows, step] = drawn.tokens
        self.uniforms[rows, step] = u
        self.model[rows, step] = drawn.model
        self.temperature_scaled[rows, step] = drawn.temperature_scaled
        self.behaviour[rows, step] = drawn.behaviour
        if keep:
            if self.logits is None:
                self.logits = np.zeros((*self.tokens.shape, logits.shape[1]), np.float32)
            self.logits[rows, step] = logits


def prompt_of_row(rows: Ints, prompts: int, samples: int) -> Ints:
    """Return the (prompt index, sample index) (R, 2) of row numbers (R,), which count prompt-major.

    Raises:
        ValueError: a row is outside the table of `prompts` x `samples`.
    """
    if ((rows < 0) | (rows >= prompts * samples)).any():
        raise ValueError(f"rows are {rows.min()}..{rows.max()}, must be in 0..{prompts * samples - 1}")
    return np.stack([rows // samples, rows % samples], axis=1)


def prompts_of(request: Request) -> Ints:
    """Return the prompt index of every requested row (R,)."""
    numbers = request.rows[:, 0] * request.samples + request.rows[:, 1]
    return prompt_of_row(numbers, len(request.prompts), request.samples)[:, 0]


def draw_index(pairs: Ints, positions: Ints) -> Ints:  # noqa: ARG001 - the position is what must not matter
    """Return the (prompt, sample) keys (R, 2) of the rows' draws; they do not depend on the positions (R,) in the batch."""
    return pairs


def finished(tokens: NDArray[np.int32], eos_ids: Ints, before: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which rows (R,) have ended after these tokens (R,): before, or with an end token now."""
    return before | np.isin(tokens, eos_ids)
