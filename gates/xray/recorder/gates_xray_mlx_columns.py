"""The columns of an update of an MLX script: the sketched gradients of log-probs, entropies and divergences, token by token.

It runs in the interpreter of the script: standard library, NumPy and mlx only.
"""

from __future__ import annotations

import copy
import functools

import gates_xray
import gates_xray_texts
import mlx.core as mx
import numpy as np
from gates_xray_mlx_weights import numbers

TRAINS = 1e-3  # of the largest coefficient: what a token has at least that trains
CHUNK_BYTES = 128 << 20  # of gradients that are held at once


class TooLargeError(Exception):
    """An update with more columns or work than was allowed."""

    def __init__(self, **facts):
        self.facts = facts
        super().__init__(
            f"the update is too large: {facts['columns']:,} columns of {facts['parameters']:,} parameters take about "
            f"{facts['seconds']:.0f} s and {facts['bytes'] / 2**30:.1f} GiB. Take fewer or shorter rows, a smaller model, "
            "or --parameters 'NAME*' to fit some parameters only, such as the adapters' or the last layer's; --columns and "
            "--seconds raise the limits"
        )


class Columns:
    """The tokens of the rows that a script scored, and what the gradients of their log-probs are.

    Attributes:
        rows: as docs/xray.md has them, with `row`, the index in the pass, and `keys` of all tokens.
        keys: of the columns.
        bins: of the sketch.
        reached: names of the parameters in which a column has a gradient.
        shift: how many positions before a token the scores lie from which its log-prob is taken; 1 in a language model.
    """

    def __init__(self, calls, weights, options, ranks):
        self.calls = calls
        self.weights = weights
        self.options = options
        self.ranks = ranks
        self.reached = set()
        self._batched = None  # whether vmap works for this model, once it is known
        self.begin(1)
        if len(self.keys) > options.columns:
            raise TooLargeError(**self.estimate(0.0))
        self.bins = gates_xray.bins_for(max(1, len(self.keys)), ranks)

    def begin(self, shift, *, padding=False):
        """List the rows anew, with scores so many positions before each token."""
        self.shift, self.keys = shift, []
        self._index = {}  # (padding in front, key) to column
        self.list_rows(padding=padding)

    def list_rows(self, *, padding):
        """Give a column to each token that follows other tokens, once for equal tokens after equal tokens.

        Args:
            padding: also behind the first token of what looks like padding.
        """
        self.rows = []
        for index, call in enumerate(self.calls):
            for row in range(len(call.ids)):
                ids, attended, row_keys = call.tokens[row].tolist(), call.attended[row].tolist(), call.keys(row)
                front = next((k for k, counts in enumerate(attended) if counts), 0)
                columns = [-1] * len(ids)
                for position in range(front + self.shift, min(len(ids), call.limits[row] + self.shift)):
                    source = position - self.shift
                    if attended[source] or (padding and not call.masked):
                        key = row_keys[position]
                        if self.shift != 1:
                            key = gates_xray.key_elsewhere(ids[position], row_keys[source], self.shift)
                        columns[position] = self._column(front, key)
                self.rows.append(
                    {"call": index, "row": row, "ids": ids, "attended": attended, "columns": columns, "keys": row_keys}
                )

    def _column(self, front, key):
        if (front, key) not in self._index:
            self._index[front, key] = len(self._index)
            self.keys.append(key)
        return self._index[front, key]

    def close(self, coefficients):
        """Decide whether a run of equal tokens at a row's end begins with the token that ends the row: where padding is such a token.

        Without a tokenizer, it does where its first token trains.
        """
        ends = gates_xray.special_tokens()["eos"]
        trains = np.abs(coefficients) > TRAINS * np.abs(coefficients).max(initial=0.0)
        closing = []
        for row in self.rows:
            first = next((k for k in range(1, len(row["ids"])) if row["attended"][k - 1] > row["attended"][k]), None)
            if first is not None and not self.calls[row["call"]].masked and row["columns"][first] >= 0:
                closing.append((row, first))
        if any(row["ids"][first] in ends if ends else trains[row["columns"][first]] for row, first in closing):
            for row, first in closing:
                row["attended"][first] = 1
        gates_xray_texts.give(self.rows, gates_xray.special_tokens(), self._with_ids)

    def _with_ids(self, row, ids):
        """Return the log-probs of a row's tokens from the second on, with other tokens in it."""
        call = copy.copy(self.calls[row["call"]])
        call.ids = call.ids.copy()
        call.ids[row["row"]] = ids[: call.ids.shape[1]]
        return log_probs_of(call.logits(row["row"])[0], ids, 1.0).tolist()

    def cut(self, count):
        """Keep the first columns only, those of log-probs."""
        self._index = dict(list(self._index.items())[:count])
        del self.keys[count:]
        self.list_rows(padding=False)

    def estimate(self, seconds):
        """Return what the update takes."""
        columns = len(self.keys)
        size = gates_xray.bins_for(max(1, columns), self.ranks) * columns * 8 + CHUNK_BYTES
        return {"columns": columns, "parameters": self.weights.size, "seconds": seconds, "bytes": size}

    # --------------------------------------------------------------------------------------------- quantities

    def log_probs(self, temperature, first=0):
        """Return the sketched columns from the index `first`, with their log-probs and entropies in float64."""
        many = len(self.keys) - first
        values, entropies = np.full(many, np.nan), np.full(many, np.nan)

        def log_prob(logits, positions, targets):
            scores = _normal(logits[positions - self.shift], temperature)
            return mx.take_along_axis(scores, targets[:, None], axis=-1)[:, 0]

        def seen(logits, positions, targets, at):
            scores = log_softmax(logits[positions - self.shift], temperature)
            values[at] = scores[np.arange(len(at)), np.array(targets)]
            entropies[at] = -(np.exp(scores) * scores).sum(-1)

        return self._sketches(log_prob, first, seen), values, entropies

    def entropies(self, temperature):
        """Return the sketched gradients of the entropy at each column's place."""

        def entropy(logits, positions, _):
            scores = _normal(logits[positions - self.shift], temperature)
            return -(mx.exp(scores) * scores).sum(-1)

        return self._sketches(entropy)

    def divergences(self, start):
        """Return the sketched gradients of the KL to other weights, over the whole vocabulary."""
        other = []

        def before(*_):
            with self.weights.using(start):
                other[:] = [self.row_logits(*self._current)]
                mx.eval(other)

        def divergence(logits, positions, _):
            reference = mx.stop_gradient(_normal(other[0][positions - self.shift], 1.0))
            scores = _normal(logits[positions - self.shift], 1.0)
            return (mx.exp(scores) * (scores - reference)).sum(-1)

        return self._sketches(divergence, 0, before)

    def log_probs_at(self, weights, temperature):
        """Return the log-probs of the columns at other weights."""
        result = np.full(len(self.keys), np.nan)
        with self.weights.using(weights):
            for row in self.rows:
                scores = log_softmax(self.row_logits(row), temperature)
                for position, column in enumerate(row["columns"]):
                    if column >= 0:
                        result[column] = scores[position - self.shift, row["ids"][position]]
        return result

    def row_logits(self, row, length=None):
        """Return the logits (T, V) of one row by itself, up to a length where only its tokens matter."""
        call = self.calls[row["call"]]
        return call.logits(row["row"], length if call.plain else None)[0]

    def noise(self, coefficients, sketch, gradient, temperature):
        """Return what a backward pass of the script's own batches adds to the columns' sum, as a share of the gradient."""
        times = np.zeros(len(coefficients))
        for row in self.rows:
            np.add.at(times, [column for column in row["columns"] if column >= 0], 1)
        names, total = list(self.weights.slots), np.zeros(self.bins)
        for index, call in enumerate(self.calls):
            places = [
                (row["row"], position, row["ids"][position], column)
                for row in self.rows
                if row["call"] == index
                for position, column in enumerate(row["columns"])
                if column >= 0
            ]
            if not places:
                continue
            line, position, target, column = (np.array(values) for values in zip(*places, strict=True))
            weight = mx.array((coefficients[column] / times[column]).astype(np.float32))

            def loss(*given, call=call, line=line, position=position, target=target, weight=weight):
                with self.weights.using(dict(zip(names, given, strict=True))):
                    scores = _normal(call.logits()[mx.array(line), mx.array(position - self.shift)], temperature)
                return (mx.take_along_axis(scores, mx.array(target)[:, None], axis=-1)[:, 0] * weight).sum()

            _, gradients = mx.vjp(loss, [self.weights.own[name] for name in names], [mx.array(1.0)])
            total += self.sketched(gradients)[0]
        return float(np.linalg.norm(total - coefficients @ sketch)) / max(float(np.linalg.norm(gradient)), 1e-300)

    # ----------------------------------------------------------------------------------------------- gradients

    def _sketches(self, quantity, first=0, seen=None):
        """Return the sketched gradients of a quantity at each token that has a column, from the index `first`.

        Args:
            quantity: returns n numbers from logits (T, V), n positions and the tokens there.
            first: index of the first column.
            seen: gets the logits at the weights before the update, positions, tokens and columns of each row.
        """
        many = len(self.keys) - first
        sketch, done = np.zeros((many, self.bins)), set()
        began, counted = gates_xray.Clock(), 0
        for row in self.rows:
            new = [k for k, column in enumerate(row["columns"]) if column >= first and column not in done]
            if not new:
                continue
            done.update(row["columns"][k] for k in new)
            at = [row["columns"][k] - first for k in new]
            positions, targets = mx.array(new), mx.array([row["ids"][k] for k in new])
            self._current = (row, max(new) + 1 - self.shift)
            if seen is not None:
                seen(self.row_logits(*self._current), positions, targets, at)
            sketch[at] = self._vectors(quantity, positions, targets)
            counted += len(new)
            expected = began() / counted * many
            if expected > self.options.seconds:
                raise TooLargeError(**self.estimate(expected))
        return sketch

    def _vectors(self, quantity, positions, targets):
        """Return the sketched gradients (n, bins) of n numbers of the current row."""
        names = list(self.weights.slots)
        weights = [self.weights.wide[name] for name in names]

        def values(*given):
            with self.weights.using(dict(zip(names, given, strict=True))):
                return quantity(self.row_logits(*self._current), positions, targets)

        one_hot = mx.eye(positions.size)
        at_once = max(1, min(positions.size, CHUNK_BYTES // (4 * self.weights.size)))
        parts = [
            self.sketched(self._gradients(values, weights, one_hot[begin : begin + at_once]), names=self.reached)
            for begin in range(0, positions.size, at_once)
        ]
        return np.concatenate(parts)

    def _gradients(self, values, weights, cotangents):
        """Return the gradients (n, …) of n numbers in each parameter."""
        if self._batched is not False:
            try:
                gradients = mx.vmap(lambda cotangent: mx.vjp(values, weights, [cotangent])[1])(cotangents)
                mx.eval(gradients)
            except (RuntimeError, ValueError):  # an operation that MLX does not batch, such as a quantised product
                self._batched = False
            else:
                self._batched = True
                return gradients
        each = []
        for cotangent in cotangents:
            each.append(mx.vjp(values, weights, [cotangent])[1])
            mx.eval(each[-1])
        return [mx.stack(column) for column in zip(*each, strict=True)]

    def sketched(self, gradients, names=None):
        """Return the sketch (n, bins) of gradients (n, …), or of one gradient, in the order of the fitted parameters.

        Args:
            gradients: arrays, None where there is none.
            names: a set that gets the names of parameters in which there is a gradient.
        """
        sketch = None
        for index, (name, gradient) in enumerate(zip(self.weights.slots, gradients, strict=True)):
            size = self.weights.own[name].size
            flat = numbers(gradient).reshape(-1, size)
            sketch = np.zeros((len(flat), self.bins)) if sketch is None else sketch
            if not flat.any():
                continue
            if names is not None:
                names.add(name)
            where, sign = _hashes(index, size, self.bins)
            for k, line in enumerate(flat):
                sketch[k] += np.bincount(where, line * sign, self.bins)
        return sketch


def _normal(logits, temperature):
    scores = logits.astype(mx.float32) / temperature
    return scores - mx.logsumexp(scores, axis=-1, keepdims=True)


def log_softmax(logits, temperature):
    """Return the log-probs of all tokens in float64."""
    scores = numbers(logits) / temperature
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))


def log_probs_of(logits, ids, temperature):
    """Return the log-prob of each token but the first from logits (T, V), NaN where there are no logits."""
    scores = log_softmax(logits[: len(ids) - 1], temperature)
    values = np.full(len(ids) - 1, np.nan)
    values[: len(scores)] = scores[np.arange(len(scores)), np.array(ids[1 : len(scores) + 1])]
    return values


@functools.lru_cache(maxsize=512)
def _hashes(index, size, bins):
    """Return the bin and the sign of each number of a parameter, by its index among the fitted parameters."""
    generator = np.random.Generator(np.random.PCG64([0, index]))
    where = generator.integers(1 << 30, size=size) % bins
    return where, generator.integers(2, size=size) * 2.0 - 1.0
