"""Measure an update of an MLX script: its columns, its sketched gradient, and the optimizer's own numbers.

It runs in the interpreter of the script: standard library, NumPy and mlx only. The script's model is used in place, at the weights
before the update, in float32 where it has half precision, without dropout; what it had is given back.
"""

from __future__ import annotations

import contextlib
import fnmatch
import functools

import gates_xray
import gates_xray_mlx_calls as passes
import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten

CHUNK_BYTES = 128 << 20  # of gradients that are held at once
HALF = {mx.float16, mx.bfloat16}
STATES = {"m": "exp_avg", "v": "exp_avg_sq"}
SETTINGS = {"learning_rate": "lr"}


class TooLarge(Exception):
    """An update with more columns or work than was allowed."""

    def __init__(self, **facts):
        self.facts = facts
        super().__init__(
            f"the update is too large: {facts['columns']:,} columns of {facts['parameters']:,} parameters take about {facts['seconds']:.0f} s and "
            f"{facts['bytes'] / 2**30:.1f} GiB. Take fewer or shorter rows, a smaller model, or --parameters 'NAME*' to fit some "
            "parameters only, such as the adapters' or the last layer's; --columns and --seconds raise the limits"
        )


class Slot:
    """The place of a parameter: the module, list or dictionary that holds it."""

    def __init__(self, root, name):
        *path, self.key = [int(part) if part.isdigit() else part for part in name.split(".")]
        self.module = self.holder = root
        for part in path:
            self.holder = self.holder[part if isinstance(self.holder, (list, tuple)) else str(part)]
            if isinstance(self.holder, nn.Module):
                self.module = self.holder
        if not isinstance(self.holder, (list, tuple)):
            self.key = str(self.key)

    def get(self):
        """Return the parameter."""
        return self.holder[self.key]

    def set(self, value):
        """Replace the parameter; nothing else of the module changes."""
        if isinstance(self.holder, list):
            self.holder[self.key] = value
        else:
            dict.__setitem__(self.holder, self.key, value)


class Update:
    """One update: what its gradient is made of, and what the optimizer did."""

    def __init__(self, recorder, optimizer, root, gradients):
        self.recorder = recorder
        self.recording = recorder.recording
        self.optimizer = optimizer
        self.number = self.recording.made + 1
        self.clock = gates_xray.Clock()
        self.gradients = {name: value for name, value in tree_flatten(gradients) if isinstance(value, mx.array)}
        slots = {name: Slot(root, name) for name in self.gradients}
        self.trained = {id(slot.module) for slot in slots.values()}
        self.calls = self._passes(root)
        self.outside = []
        reached = set().union(*(call.parts for call in self.calls)) if self.calls else set()
        self.slots = {name: slot for name, slot in slots.items() if self._fits(name) and id(slot.module) in reached}
        self.outside = sorted(name for name, slot in slots.items() if id(slot.module) not in reached)
        if self.calls and not self.slots:
            raise ValueError(f"no parameter with a gradient fits the patterns {self.recording.options.parameters}")
        self.dtypes = {str(slot.get().dtype).removeprefix("mlx.core.") for slot in self.slots.values()}
        self.columns, self.keys, self.rows = {}, [], []
        self.padding = 0
        self._batched = None  # whether vmap works for this model, once it is known
        self._reached = {}  # by parameter: whether a column has a number there

    def _fits(self, name):
        patterns = self.recording.options.parameters
        return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    def _passes(self, root):
        """Return the passes with gradient through the trained modules, each under the module that gives logits."""
        chosen = []
        for call in self.recorder.calls:
            if call.bare:
                holders = [m for m in root.modules() if m is not call.module and any(part is call.module for part in m.modules())]
                if not holders:
                    continue
                call.module = min(holders, key=lambda module: len(module.modules()))
                call.parts |= {id(part) for part in call.module.modules()}
            if self.trained & call.parts and not call.off:
                chosen.append(call)
        if any(call.cached for call in chosen):
            raise ValueError("a forward pass with gradient goes on from a key-value cache; record whole rows in one pass each")
        return chosen

    # ------------------------------------------------------------------------------------------- the columns

    def measure(self):
        """Compute the columns, and further kinds of columns until they explain the gradient."""
        self._sample()
        if self.recorder.start is None:
            self.recorder.start = {name: slot.get() for name, slot in self.slots.items()}
        with passes.quiet(self.calls), self._given_back():
            self.own = {name: slot.get() for name, slot in self.slots.items()}
            self.calls = [call for call in self.calls if call.repeats()]
            if not self.calls:
                raise ValueError("no forward pass with gradient could be repeated from its tokens")
            self._list_rows(padding=False)
            if len(self.columns) > self.recording.options.columns:
                raise TooLarge(**self._estimate(0.0))
            self.bins = gates_xray.bins_for(max(1, len(self.columns)), self._ranks()[1])
            with self._in_float32():
                self._explain()
                self.start_log_probs = self._at_start()

    def _list_rows(self, padding):
        """Give a column to each token that follows other tokens, once for equal tokens after equal tokens."""
        for index, call in enumerate(self.calls):
            for row in range(len(call.ids)):
                ids, attended = call.tokens[row].tolist(), call.attended[row].tolist()
                row_keys = call.keys(row)
                front = next((k for k, counts in enumerate(attended) if counts), 0)
                columns = [-1] * len(ids)
                for position in range(front + 1, len(ids)):
                    if call.masked and not attended[position - 1] or not (call.masked or padding or attended[position]):
                        continue
                    identity = (front, row_keys[position])
                    if identity not in self.columns:
                        self.columns[identity] = len(self.columns)
                        self.keys.append(row_keys[position])
                    columns[position] = self.columns[identity]
                self.rows.append({"call": index, "row": row, "ids": ids, "attended": attended, "columns": columns, "keys": row_keys})

    def _explain(self):
        temperatures, best = {}, None
        for temperature in dict.fromkeys((1.0, *self.recorder.temperatures)):
            sketch, values, entropy = self._log_prob_columns(temperature, 0)
            gradient = self._gradient()
            share, coefficients = gates_xray.unexplained(sketch, gradient)
            temperatures[str(temperature)] = share
            if best is None or share < best[0]:
                best = (share, coefficients, sketch, values, entropy, temperature)
            if gates_xray.explains(share, 0.0):
                break
        share, coefficients, self.sketch, self.values, self.entropy, self.temperature = best
        self.gradient, self.temperatures = gradient, temperatures
        self.kinds = [["log_prob", len(self.columns)]]
        self.noise = self._noise(coefficients)
        self.tried = [[["log_prob"], share]]
        if gates_xray.explains(share, self.noise):
            return
        for kind, columns in (("padding", self._padding_columns), ("entropy", self._entropy_columns), ("kl", self._kl_columns)):
            more = columns()
            if more is None or not len(more):
                continue
            left, _ = gates_xray.unexplained(np.concatenate([self.sketch, more]), self.gradient)
            self.tried.append([[*(name for name, _ in self.kinds), kind], left])
            if kind == "padding" or gates_xray.explains(left, self.noise) or left < 0.1 * share:
                self.sketch, share = np.concatenate([self.sketch, more]), left
                self.kinds.append([kind, len(more)])
                if gates_xray.explains(left, self.noise):
                    return

    def _padding_columns(self):
        """Return columns for what looks like padding behind a row; they come after all others."""
        first = len(self.columns)
        if all(call.masked or call.attended.all() for call in self.calls):
            return None
        self.rows = []
        self._list_rows(padding=True)
        if len(self.columns) > self.recording.options.columns:
            self.recording.event("too large", **self._estimate(0.0))
            return None
        sketch, values, entropy = self._log_prob_columns(self.temperature, first)
        self.values, self.entropy = np.concatenate([self.values, values]), np.concatenate([self.entropy, entropy])
        return sketch

    def _log_prob_columns(self, temperature, first):
        """Return the sketched columns from the index `first`, their log-probs and entropies."""
        many = len(self.columns) - first
        values, entropies = np.full(many, np.nan), np.full(many, np.nan)

        def log_probs(logits, positions, targets):
            scores = logits[positions - 1].astype(mx.float32) / temperature
            scores = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
            return mx.take_along_axis(scores, targets[:, None], axis=-1)[:, 0]

        def seen(logits, positions, targets, at):
            scores = np.array(logits[positions - 1].astype(mx.float32)).astype(np.float64) / temperature
            scores -= scores.max(-1, keepdims=True)
            scores -= np.log(np.exp(scores).sum(-1, keepdims=True))
            values[at] = scores[np.arange(len(at)), np.array(targets)]
            entropies[at] = -(np.exp(scores) * scores).sum(-1)

        return self._columns_of(log_probs, first, seen), values, entropies

    def _entropy_columns(self):
        def entropy(logits, positions, _):
            scores = logits[positions - 1].astype(mx.float32) / self.temperature
            scores = scores - mx.logsumexp(scores, axis=-1, keepdims=True)
            return -(mx.exp(scores) * scores).sum(-1)

        return self._columns_of(entropy)

    def _kl_columns(self):
        if self.number == 1 or not self._has_start():
            return None  # the KL to the starting weights has no gradient at the starting weights

        def divergence(logits, positions, _):
            start = mx.stop_gradient(self._start_logits[positions - 1].astype(mx.float32))
            scores = logits[positions - 1].astype(mx.float32)
            scores, start = (x - mx.logsumexp(x, axis=-1, keepdims=True) for x in (scores, start))
            return (mx.exp(scores) * (scores - start)).sum(-1)

        return self._columns_of(divergence, start=True)

    def _columns_of(self, quantity, first=0, seen=None, start=False):
        """Return the sketched gradients of a quantity at each token that has a column, from the index `first`."""
        many = len(self.columns) - first
        sketch, done = np.zeros((many, self.bins)), set()
        began, counted = gates_xray.Clock(), 0
        for row in self.rows:
            new = [k for k, column in enumerate(row["columns"]) if column >= first and column not in done]
            if not new:
                continue
            at = [row["columns"][k] - first for k in new]
            done.update(row["columns"][k] for k in new)
            positions, targets = mx.array(new), mx.array([row["ids"][k] for k in new])
            length = max(new)
            if seen is not None:
                seen(self._row_logits(row, length), positions, targets, at)
            if start:
                with self._weights(self.recorder.start):
                    self._start_logits = self._row_logits(row, length)
                    mx.eval(self._start_logits)
            sketch[at] = self._vectors(lambda logits, p=positions, t=targets: quantity(logits, p, t), row, length, len(new))
            counted += len(new)
            expected = began() / counted * many
            if expected > self.recording.options.seconds:
                raise TooLarge(**self._estimate(expected))
        return sketch

    def _row_logits(self, row, length=None):
        """Return the logits (T, V) of one row by itself, up to a length where only its tokens matter."""
        call = self.calls[row["call"]]
        return call.logits(row["row"], length if call.plain else None)[0]

    def _vectors(self, quantity, row, length, many):
        """Return the sketched gradients (n, bins) of the n numbers that `quantity` makes of a row's logits."""
        names = list(self.slots)
        weights = [self.own32[name] for name in names]

        def numbers(*given):
            with self._weights(dict(zip(names, given))):
                return quantity(self._row_logits(row, length))

        one_hot = mx.eye(many)
        at_once = max(1, min(many, CHUNK_BYTES // (4 * sum(weight.size for weight in weights))))
        parts = []
        for begin in range(0, many, at_once):
            parts.append(self._sketched(names, self._gradients(numbers, weights, one_hot[begin : begin + at_once])))
        return np.concatenate(parts)

    def _gradients(self, numbers, weights, cotangents):
        """Return the gradients (n, …) of n numbers in each parameter."""
        if self._batched is not False:
            try:
                gradients = mx.vmap(lambda cotangent: mx.vjp(numbers, weights, [cotangent])[1])(cotangents)
                mx.eval(gradients)
            except (RuntimeError, ValueError):  # an operation that MLX does not batch, such as a quantised product
                self._batched = False
            else:
                self._batched = True
                return gradients
        each = []
        for cotangent in cotangents:
            each.append(mx.vjp(numbers, weights, [cotangent])[1])
            mx.eval(each[-1])
        return [mx.stack(column) for column in zip(*each)]

    def _sketched(self, names, gradients):
        """Return the sketch (n, bins) of gradients (n, …), or of one gradient."""
        rows = None
        for index, (name, gradient) in enumerate(zip(names, gradients)):
            size = self.slots[name].get().size
            flat = _numbers(gradient).reshape(-1, size)
            rows = np.zeros((len(flat), self.bins)) if rows is None else rows
            if not flat.any():
                continue
            self._reached[name] = True
            where, sign = _hashes(index, size, self.bins)
            for k, values in enumerate(flat):
                rows[k] += np.bincount(where, values * sign, self.bins)
        return rows

    def _gradient(self):
        """Return the sketch of what the optimizer was given, in the parameters that the columns reach."""
        kept = [name for name in self.slots if name in self._reached or not _numbers(self.gradients[name]).any()]
        self.outside = sorted({*self.outside, *(name for name in self.slots if name not in kept)})
        gradients = [self.gradients[name] if name in kept else mx.zeros_like(self.gradients[name]) for name in self.slots]
        self.norm = float(np.sqrt(sum((_numbers(gradient) ** 2).sum() for gradient in gradients)))
        reached = dict(self._reached)
        result = self._sketched(list(self.slots), gradients)[0]
        self._reached = reached
        return result

    def _noise(self, coefficients):
        """Return what a backward pass of the script's own batches adds to the columns' sum, as a share of the gradient."""
        if not self.norm:
            return 0.0
        times = np.zeros(len(coefficients))
        for row in self.rows:
            np.add.at(times, [column for column in row["columns"] if column >= 0], 1)
        names, total, at = list(self.slots), np.zeros(self.bins), 0
        with self._in_own_precision():
            for call in self.calls:
                rows = self.rows[at : at + len(call.ids)]
                at += len(call.ids)
                places = [(row["row"], k, row["ids"][k], row["columns"][k]) for row in rows for k in range(len(row["ids"])) if row["columns"][k] >= 0]
                if not places:
                    continue
                line, position, target, column = (np.array(values) for values in zip(*places))
                weight = mx.array((coefficients[column] / times[column]).astype(np.float32))

                def loss(*given, call=call, line=line, position=position, target=target, weight=weight):
                    with self._weights(dict(zip(names, given))):
                        logits = call.logits().astype(mx.float32)
                    scores = logits[mx.array(line), mx.array(position - 1)] / self.temperature
                    picked = mx.take_along_axis(scores, mx.array(target)[:, None], axis=-1)[:, 0]
                    return ((picked - mx.logsumexp(scores, axis=-1)) * weight).sum()

                _, gradients = mx.vjp(loss, [self.own[name] for name in names], [mx.array(1.0)])
                total += self._sketched(names, gradients)[0]
        return float(np.linalg.norm(total - coefficients @ self.sketch)) / max(float(np.linalg.norm(self.gradient)), 1e-300)

    def _has_start(self):
        return all(name in self.recorder.start for name in self.slots)

    def _at_start(self):
        """Return the log-probs at the weights before the first update."""
        if self.number == 1:
            return self.values
        result = np.full(len(self.keys), np.nan)
        if self._has_start():
            with self._weights(self.recorder.start):
                for row in self.rows:
                    values = _log_probs(self._row_logits(row), row["ids"], self.temperature)
                    for k, column in enumerate(row["columns"]):
                        if column >= 0:
                            result[column] = values[k - 1]
        return result

    def _scorers(self, arrays):
        """Add the log-probs of passes without gradient, and say who gave them."""
        index = {key: column for column, key in enumerate(self.keys)}
        gathered = {}
        beside = [[call, self.number - 1] for call in self.recorder.calls if call not in self.calls and not call.bare]
        for entry in [*self.recorder.scored, *beside]:
            call, made = entry[0], entry[1]
            if len(entry) == 2:
                entry.append([call.keys(row) for row in range(len(call.ids))])
            if not any(key in index for keys in entry[2] for key in keys):
                continue
            by = self._who(call)
            values = gathered.setdefault((by, id(call.module), made), [type(call.module).__name__, np.full(len(self.keys), np.nan), 0, 0])
            with call.state.restored():
                if call.bare or not call.repeats():
                    continue
                logits = np.array(call.logits().astype(mx.float32))
            for row, keys in enumerate(entry[2]):
                scores = _log_probs(logits[row], call.tokens[row], self.temperature)
                for k in range(1, len(keys)):
                    if keys[k] in index:
                        values[1][index[keys[k]]] = scores[k - 1]
            values[2] += len(call.ids)
            values[3] += call.ids.size
        scorers = []
        for (by, _, made), (model, values, rows, tokens) in gathered.items():
            if np.isnan(values).all():
                continue
            arrays[f"scored.{len(scorers)}"] = values
            scorers.append({"by": by, "model": model, "update": made})
            self.recording.event("scored", by=by, rows=rows, tokens=tokens, update=made)
        return scorers

    def _who(self, call):
        if self.trained & call.parts and not call.off:
            return "trained model"
        ours = {part for own in self.calls for part in own.parts}
        return "trained model with adapters off" if call.off or ours & call.parts else "another model"

    # ------------------------------------------------------------------------------------------- the weights

    @contextlib.contextmanager
    def _weights(self, weights):
        """Use other weights inside the block."""
        before = [(self.slots[name], self.slots[name].get()) for name in weights if name in self.slots]
        try:
            for name, weight in weights.items():
                if name in self.slots:
                    self.slots[name].set(weight)
            yield
        finally:
            for slot, weight in before:
                slot.set(weight)

    @contextlib.contextmanager
    def _given_back(self):
        """Give the model the very arrays back that it had."""
        kept = [(slot, slot.get()) for slot in self.slots.values()]
        try:
            yield
        finally:
            for slot, weight in kept:
                slot.set(weight)

    @contextlib.contextmanager
    def _in_float32(self):
        """Use float32 for every number in half precision inside the block."""
        slots = {}
        for call in self.calls:
            for name, value in tree_flatten(call.module.parameters()):
                if value.dtype in HALF:
                    slot = Slot(call.module, name)
                    slots[id(slot.holder), slot.key] = (slot, value)
        try:
            for slot, value in slots.values():
                slot.set(value.astype(mx.float32))
            self.own32 = {name: slot.get() for name, slot in self.slots.items()}
            self._halves = [(slot, value, slot.get()) for slot, value in slots.values()]
            yield
        finally:
            for slot, value in slots.values():
                slot.set(value)

    @contextlib.contextmanager
    def _in_own_precision(self):
        """Use the script's own numbers again inside the block."""
        try:
            for slot, value, _ in self._halves:
                slot.set(value)
            yield
        finally:
            for slot, _, value in self._halves:
                slot.set(value)

    # -------------------------------------------------------------------------------------------- the update

    def _sample(self):
        """Keep single weights with their gradients and the optimizer's state."""
        total = sum(slot.get().size for slot in self.slots.values())
        generator = np.random.Generator(np.random.PCG64(1))
        self._places, arrays, states = {}, {"group": [], "before": [], "gradient": []}, {}
        for name, slot in self.slots.items():
            size = slot.get().size
            many = min(size, max(16, gates_xray.SAMPLE * size // total))
            places = self._places[name] = generator.choice(size, many, replace=False) if size < 1 << 24 else generator.integers(size, size=many)
            group, optimizer = self._group(name)
            arrays["group"].append(np.full(many, group, np.int64))
            arrays["before"].append(_picked(slot.get(), places))
            arrays["gradient"].append(_picked(self.gradients[name], places))
            states[name] = (many, size, {"step": optimizer.state.get("step"), **_state_of(optimizer.state, name)}, optimizer)
        for key in sorted({key for _, _, state, _ in states.values() for key in state}):
            parts = []
            for name, (many, size, state, _) in states.items():
                value = state.get(key)
                if isinstance(value, mx.array) and value.size == size and size > 1:
                    parts.append(_picked(value, self._places[name]))
                else:
                    usable = isinstance(value, (int, float)) or (isinstance(value, mx.array) and value.size == 1)
                    parts.append(np.full(many, float(np.array(value).reshape(-1)[0]) if usable else np.nan))
            arrays[f"state.{self._state_name(key, states)}"] = parts
        self._kept = {f"sample.{name}": np.concatenate(parts) for name, parts in arrays.items()}

    def _state_name(self, key, states):
        keys = {name for _, _, state, _ in states.values() for name in state}
        if key == "v" and "m" not in keys:
            return "momentum_buffer"
        return STATES.get(key, key)

    def _group(self, name):
        """Return the index of the optimizer that moves a parameter, and that optimizer: several in a MultiOptimizer."""
        several = getattr(self.optimizer, "optimizers", None)
        if not several:
            return 0, self.optimizer
        gradient = self.gradients[name]
        index = next((k for k, wanted in enumerate(self.optimizer.filters) if wanted(name, gradient)), len(several) - 1)
        return index, several[index]

    def write(self, result):
        """Write the update, after the optimizer has made it."""
        after = {name: value for name, value in tree_flatten(result) if isinstance(value, mx.array)}
        arrays = dict(self._kept)
        arrays["sample.after"] = np.concatenate([_picked(after[name], self._places[name]) for name in self.slots])
        gradient = arrays["sample.gradient"] != 0
        arrays.update(
            sketch=self.sketch, gradient=self.gradient, log_probs=self.values, entropy=self.entropy, start_log_probs=self.start_log_probs
        )
        with passes.quiet(self.calls), self._given_back():
            scorers = self._scorers(arrays)
        rank, ranks = self._ranks()
        document = {
            "format": gates_xray.FORMAT,
            "update": self.number,
            "framework": f"mlx {mx.__version__}",
            "rank": rank,
            "world_size": ranks,
            "model": type(self.calls[-1].module).__name__,
            "dtype": next(iter(self.dtypes)) if len(self.dtypes) == 1 else "mixed",
            "autocast": None,
            "dropout": max(call.dropout for call in self.calls),
            "trained": {"tensors": len(self.slots), "numbers": sum(slot.get().size for slot in self.slots.values())},
            "restricted": self.recording.options.parameters,
            "outside": self.outside[:20],
            "optimizer": {
                "name": type(self.optimizer).__name__,
                "groups": [_settings(each) for each in getattr(self.optimizer, "optimizers", None) or [self.optimizer]],
            },
            "temperature": self.temperature,
            "temperatures": self.temperatures,
            "kinds": self.kinds,
            "tried": self.tried,
            "rows": [self._row(row) for row in self.rows],
            "keys": self.keys,
            "special": gates_xray.special_tokens(),
            "scorers": scorers,
            "noise": self.noise,
            "gradient_norm": self.norm,
            "clip": self._clip(),
            "moved": {
                "numbers": len(gradient),
                "with_gradient": int(gradient.sum()),
                "still": int((gradient & (arrays["sample.after"] == arrays["sample.before"])).sum()),
            },
            "bins": self.bins,
            "seed": 0,
        }
        self.recording.write(self.number, document, arrays)
        self.recording.event("update", update=self.number, seconds=round(self.clock(), 3))

    def _clip(self):
        if self.recorder.clip is None:
            return None
        norm, limit = self.recorder.clip
        clip = {"norm": float(norm), "limit": float(limit)}
        self.recording.event("clip", update=self.number - 1, **clip)
        return clip

    def _row(self, row):
        attended = row["attended"]
        length = None
        for ends in (self.recorder.ends, self.recorder.weak_ends):
            if length is None:
                length = gates_xray.prompt_length(row["keys"], attended, ends)
        return {
            "call": row["call"],
            "ids": row["ids"],
            "attended": attended,
            "columns": row["columns"],
            "prompt": None if length is None or length >= sum(attended) else length,
            "labels": None,
            "text": gates_xray.texts(row["ids"]),
        }

    def _ranks(self):
        group = self.recorder.group
        return (0, 1) if group is None else (group.rank(), group.size())

    def _estimate(self, seconds):
        columns = len(self.columns)
        return {
            "columns": columns,
            "parameters": sum(slot.get().size for slot in self.slots.values()),
            "seconds": seconds,
            "bytes": gates_xray.bins_for(max(1, columns), self._ranks()[1]) * columns * 8 + CHUNK_BYTES,
        }


# ------------------------------------------------------------------------------------------------- helpers


def _numbers(array):
    return np.array(array.astype(mx.float32) if array.dtype in HALF else array).astype(np.float64)


def _picked(array, places):
    return _numbers(array.reshape(-1)[mx.array(places)])


def _log_probs(logits, ids, temperature):
    """Return the log-prob of each token but the first from logits (T, V)."""
    scores = np.array(logits.astype(mx.float32) if isinstance(logits, mx.array) else logits).astype(np.float64) / temperature
    scores = scores[: len(ids) - 1]
    top = scores.max(-1)
    sums = top + np.log(np.exp(scores - top[:, None]).sum(-1))
    values = np.full(len(ids) - 1, np.nan)
    values[: len(scores)] = scores[np.arange(len(scores)), np.array(ids[1 : len(scores) + 1])] - sums
    return values


@functools.lru_cache(maxsize=256)
def _hashes(index, size, bins):
    """Return the bin and the sign of each number of a parameter, by its index among the fitted parameters."""
    generator = np.random.Generator(np.random.PCG64([0, index]))
    where = generator.integers(1 << 30, size=size) % bins
    return where, generator.integers(2, size=size) * 2.0 - 1.0


def _state_of(state, name):
    """Return the optimizer's state of one parameter."""
    for part in name.split("."):
        if isinstance(state, (list, tuple)):
            state = state[int(part)] if int(part) < len(state) else {}
        else:
            state = state.get(part, {}) if isinstance(state, dict) else {}
    return state if isinstance(state, dict) else {}


def _settings(optimizer):
    """Return an optimizer's settings as they hold at the update that it has made."""
    held = {key: value for key, value in vars(optimizer).items() if not key.startswith("_") and isinstance(value, (int, float, bool, str, list, tuple))}
    scalars = {
        key: float(np.array(value)) for key, value in optimizer.state.items() if isinstance(value, mx.array) and value.size == 1 and key != "step"
    }
    return {SETTINGS.get(key, key): value for key, value in {**held, **scalars}.items()}
