"""Recordings of a small softmax model in NumPy, whose coefficients are known exactly."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from gates.model import Array

VOCABULARY, WIDTH, EOS, PAD = 31, 24, 1, 0
DECAY = 0.7
SHAPES = {"E": (VOCABULARY, WIDTH), "A": (WIDTH, WIDTH), "B": (WIDTH, WIDTH), "C": (VOCABULARY, WIDTH)}
SIZE = sum(rows * columns for rows, columns in SHAPES.values())


@dataclass(frozen=True)
class Model:
    """logits = C tanh(A e_t + B m_t), where m_t = Σ_j 0.7^(t−j) e_j over the tokens up to t."""

    flat: Array

    @classmethod
    def drawn(cls, seed: int = 0, scale: float = 0.5) -> Model:
        return cls(np.random.default_rng(seed).normal(0.0, scale, SIZE))

    def moved(self, by: Array) -> Model:
        return Model(self.flat + by)

    def parts(self) -> dict[str, Array]:
        parts, at = {}, 0
        for name, shape in SHAPES.items():
            parts[name] = self.flat[at : at + shape[0] * shape[1]].reshape(shape)
            at += shape[0] * shape[1]
        return parts

    def log_probs(self, ids: Sequence[int]) -> Array:
        """The log-prob of each token after those before it; NaN for the first."""
        return self.gradients(ids)[0]

    def gradients(self, ids: Sequence[int], *, entropy: bool = False) -> tuple[Array, Array]:
        """The log-probs (T,), or the entropies they are drawn from, and their gradients (T, SIZE)."""
        p = self.parts()
        values, gradients = np.full(len(ids), np.nan), np.zeros((len(ids), SIZE))
        memory = np.zeros(WIDTH)
        for t in range(len(ids) - 1):
            memory = DECAY * memory + p["E"][ids[t]]
            h = np.tanh(p["A"] @ p["E"][ids[t]] + p["B"] @ memory)
            logits = p["C"] @ h
            shifted = logits - logits.max()
            log_p = shifted - np.log(np.exp(shifted).sum())
            values[t + 1] = -(np.exp(log_p) @ log_p) if entropy else log_p[ids[t + 1]]
            d_logits = -np.exp(log_p)
            if entropy:
                d_logits *= log_p + values[t + 1]
            else:
                d_logits[ids[t + 1]] += 1.0
            inner = (p["C"].T @ d_logits) * (1.0 - h * h)
            d = {name: np.zeros(shape) for name, shape in SHAPES.items()}
            d["C"] = np.outer(d_logits, h)
            d["A"] = np.outer(inner, p["E"][ids[t]])
            d["B"] = np.outer(inner, memory)
            d["E"][ids[t]] += p["A"].T @ inner
            for j in range(t + 1):
                d["E"][ids[j]] += DECAY ** (t - j) * (p["B"].T @ inner)
            gradients[t + 1] = np.concatenate([d[name].ravel() for name in SHAPES])
        return values, gradients


@dataclass
class Line:
    """A row: prompt and completion, padded on the right.

    Attributes:
        prompt: token ids.
        completion: token ids.
        padding: tokens behind, which the attention mask hides.
        seen: whether the sampler's prompt was seen.
        labels: as the script passed them.
        hide: hide the last token of the completion by the attention mask.
        tail: tokens behind, which the attention mask hides, in place of padding.
        encoded: whether the tokenizer was given the prompt by itself.
        texts: what was recorded of several texts in the row.
    """

    prompt: list[int]
    completion: list[int]
    padding: int = 0
    seen: bool = True
    labels: list[int] | None = None
    hide: bool = False
    tail: list[int] = field(default_factory=list)
    encoded: bool = False
    texts: dict[str, Any] | None = None

    @property
    def ids(self) -> list[int]:
        return [*self.prompt, *self.completion, *[PAD] * self.padding, *self.tail]

    @property
    def attended(self) -> list[int]:
        whole = len(self.prompt) + len(self.completion) - self.hide
        return [1] * whole + [0] * (len(self.ids) - whole)

    @property
    def length(self) -> int:
        return len(self.completion)


def lines(
    lengths: Sequence[int], group: int = 4, seed: int = 1, *, prompts: Sequence[int] = (5, 4), ends: bool = True
) -> list[Line]:
    """Rows of random tokens: `group` completions of each prompt, that end in EOS."""
    rng = np.random.default_rng(seed)
    rows: list[Line] = []
    for index, length in enumerate(lengths):
        if index % group == 0:
            prompt = rng.integers(2, VOCABULARY, prompts[index // group % len(prompts)]).tolist()
        tokens = rng.integers(2, VOCABULARY, length).tolist()
        if ends:
            tokens[-1] = EOS
        rows.append(Line(list(prompt), tokens, padding=max(lengths) - length))
    return rows


def key(ids: Sequence[int]) -> str:
    """A key of the attended tokens up to and with its own."""
    digest = hashlib.blake2b(digest_size=8)
    for token in ids:
        digest.update(struct.pack("<q", token))
    return digest.hexdigest()


@dataclass
class Made:
    """An update to record.

    Attributes:
        model: before the update.
        rows: that were scored.
        coefficients: of each row, (T,): the derivative of the loss with respect to each log-prob.
        document: fields that differ from the usual ones.
        optimizer: name and settings.
        after: the weights after the update; None: plain SGD.
        state: the optimizer's state before.
        start: at update 1.
        scored: by whom, and log-probs a row.
        extra: a gradient that no column explains.
        entropy: coefficient of each token's entropy; None: no columns of it.
    """

    model: Model
    rows: list[Line]
    coefficients: list[Array]
    number: int = 1
    document: dict[str, Any] = field(default_factory=dict)
    optimizer: tuple[str, dict[str, Any]] = ("SGD", {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0})
    after: Array | None = None
    state: Mapping[str, Array] = field(default_factory=dict)
    start: Model | None = None
    scored: list[tuple[dict[str, Any], Model]] = field(default_factory=list)
    extra: Array | None = None
    entropy: float | None = None
    factor: float = 1.0
    bins: int = 1024
    call: int = 2  # rows of a forward pass

    def columns(self) -> tuple[list[list[int]], list[str], list[tuple[int, int]]]:
        known: dict[str, int] = {}
        places: list[tuple[int, int]] = []
        table = []
        for index, line in enumerate(self.rows):
            numbers, shown = [], []
            for position, (token, attended) in enumerate(zip(line.ids, line.attended, strict=True)):
                name = key([*shown, token])
                if shown and (attended or line.attended[position - 1]):
                    if name not in known:
                        known[name] = len(known)
                        places.append((index, position))
                    numbers.append(known[name])
                else:
                    numbers.append(-1)
                if attended:
                    shown.append(token)
            table.append(numbers)
        return table, list(known), places

    def gradient(self) -> Array:
        """The gradient of the loss."""
        total = np.zeros(SIZE) if self.extra is None else self.extra.copy()
        for line, weights in zip(self.rows, self.coefficients, strict=True):
            total += weights @ self.model.gradients(line.ids)[1]
            if self.entropy is not None:
                total += self.entropy * (weights != 0) @ self.model.gradients(line.ids, entropy=True)[1]
        return self.factor * total


def sketched(vectors: Array, bins: int, seed: int = 0) -> Array:
    """Give each number with a random sign to a bin."""
    rng = np.random.default_rng(seed)
    where, sign = rng.integers(0, 1 << 30, SIZE) % bins, rng.choice([-1.0, 1.0], SIZE)
    result = np.zeros((len(vectors), bins))
    np.add.at(result.T, where, (vectors * sign).T)
    return result


def write(folder: Path, made: Made, *, gradient: Array | None = None, rank: int = 0, world_size: int = 1) -> Path:
    """Write an update into the folder of a process."""
    folder.mkdir(parents=True, exist_ok=True)
    table, names, places = made.columns()
    by_row = [made.model.gradients(line.ids) for line in made.rows]
    start = made.start or made.model
    received = made.gradient() if gradient is None else gradient
    name, settings = made.optimizer
    after = made.model.flat - settings.get("lr", 0.1) * received if made.after is None else made.after
    vectors = np.stack([by_row[row][1][position] for row, position in places])
    kinds = [["log_prob", len(places)]]
    if made.entropy is not None:
        entropies = [made.model.gradients(line.ids, entropy=True)[1] for line in made.rows]
        vectors = np.concatenate([vectors, np.stack([entropies[row][position] for row, position in places])])
        kinds.append(["entropy", len(places)])
    arrays = {
        "sketch": sketched(vectors, made.bins),
        "gradient": sketched(received[None], made.bins)[0],
        "log_probs": np.array([by_row[row][0][position] for row, position in places]),
        "entropy": np.zeros(len(places)),
        "start_log_probs": _values(start, made.rows, places),
        "sample.group": np.zeros(SIZE, np.int64),
        "sample.before": made.model.flat,
        "sample.after": after,
        "sample.gradient": received,
        **{f"sample.state.{part}": values for part, values in made.state.items()},
        **{f"scored.{number}": _values(model, made.rows, places) for number, (_, model) in enumerate(made.scored)},
    }
    still = int(((received != 0) & (after == made.model.flat)).sum())
    document = {
        "format": 1,
        "update": made.number,
        "framework": "numpy 2",
        "rank": rank,
        "world_size": world_size,
        "model": "Softmax",
        "dtype": "float32",
        "trained": {"tensors": 4, "numbers": SIZE},
        "outside": [],
        "optimizer": {"name": name, "groups": [settings]},
        "temperature": 1.0,
        "temperatures": {"1.0": 1e-7},
        "kinds": kinds,
        "tried": [[["log_prob"], 1e-7]],
        "rows": [_row(index, line, table[index], made.call) for index, line in enumerate(made.rows)],
        "keys": names,
        "special": {"eos": [EOS], "pad": PAD},
        "scorers": [who for who, _ in made.scored],
        "noise": 1e-7,
        "gradient_norm": float(np.linalg.norm(received)),
        "clip": None,
        "moved": {"numbers": SIZE, "with_gradient": int((received != 0).sum()), "still": still},
        "bins": made.bins,
        "seed": 0,
        **made.document,
    }
    (folder / f"update-{made.number}.json").write_text(json.dumps(document), encoding="utf-8")
    save_file(
        {part: np.ascontiguousarray(array) for part, array in arrays.items()},
        folder / f"update-{made.number}.safetensors",
    )
    return folder


def _values(model: Model, rows: Sequence[Line], places: Sequence[tuple[int, int]]) -> Array:
    by_row = [model.log_probs(line.ids) for line in rows]
    return np.array([by_row[row][position] for row, position in places])


def _row(index: int, line: Line, columns: list[int], rows: int) -> dict[str, Any]:
    return {
        "call": index // rows,
        "ids": line.ids,
        "attended": line.attended,
        "columns": columns,
        "prompt": len(line.prompt) if line.seen else None,
        "encoded": len(line.prompt) if line.encoded else None,
        "labels": line.labels,
        "text": [f" w{token}" for token in line.ids],
        "texts": line.texts,
    }


def events(folder: Path, *more: Mapping[str, Any], rank: int = 0, world_size: int = 1, updates: int = 1) -> Path:
    """Write the events of a process."""
    first = {"event": "start", "framework": "numpy 2", "python": "3.11", "rank": rank, "world_size": world_size}
    last = {"event": "end", "updates": updates, "recorded": updates}
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(event) + "\n" for event in (first, *more, last))
    (folder / "events.jsonl").write_text(text, encoding="utf-8")
    return folder


def generated(**request: Any) -> dict[str, Any]:
    """An event of a call of `generate`."""
    asked = {
        "do_sample": True,
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "max_new_tokens": 12,
    }
    return {"event": "generate", "prompts": 8, "completions": 8, "update": 0, "request": {**asked, **request}}


def spread(rows: Sequence[Line], weights: Sequence[float]) -> list[Array]:
    """Give every token of a row's completion the row's weight, and its prompt and padding none."""
    return [
        np.array([0.0] * len(line.prompt) + [weight] * line.length + [0.0] * line.padding)
        for line, weight in zip(rows, weights, strict=True)
    ]
