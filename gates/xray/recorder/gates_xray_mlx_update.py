"""Measure and write an update of an MLX script.

It runs in the interpreter of the script: standard library, NumPy and mlx only. The script's model is used in place, at the weights
before the update, in float32 where it has half precision, without dropout; what it had is given back.
"""

from __future__ import annotations

import contextlib
import fnmatch

import gates_xray
import gates_xray_encoded
import gates_xray_mlx_cached as cached
import gates_xray_mlx_calls as passes
import gates_xray_mlx_router
import mlx.core as mx
import numpy as np
from gates_xray_cannot import unfitted
from gates_xray_lines import Lines
from gates_xray_mlx_columns import Columns, TooLargeError, log_probs_of
from gates_xray_mlx_optimizer import Sample, described
from gates_xray_mlx_weights import Slot, Weights, numbers
from mlx.utils import tree_flatten

USUAL = (
    0.6,
    0.7,
    0.8,
    0.9,
    0.5,
    1.2,
    1.1,
    0.4,
    0.3,
    1.5,
    2.0,
)  # temperatures of a loss that are tried when all else fails
SEARCH = 20.0  # most seconds for that


class Update:
    """One update: what its gradient is made of, and what the optimizer did."""

    def __init__(self, recorder, optimizer, root, gradients):
        self.recorder = recorder
        self.recording = recorder.recording
        self.optimizer = optimizer
        self.root = root
        self.number = self.recording.made + 1
        self.clock = gates_xray.Clock()
        self.gradients = {name: value for name, value in tree_flatten(gradients) if isinstance(value, mx.array)}
        slots = {name: Slot(root, name) for name in self.gradients}
        self.trained = {id(slot.module) for slot in slots.values()}
        self.calls = self._passes(root)
        reached = set().union(*(call.parts for call in self.calls))
        self.outside = {name for name, slot in slots.items() if id(slot.module) not in reached}
        fitted = {name: slot for name, slot in slots.items() if name not in self.outside and self._fits(name)}
        if self.calls and not fitted:
            patterns = self.recording.options.parameters
            raise unfitted(patterns)
        self.weights = Weights(fitted)

    def _fits(self, name):
        patterns = self.recording.options.parameters
        return not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    def _passes(self, root):
        """Return the passes with gradient through the trained modules, each under the module that gives logits."""
        chosen = []
        for call in self.recorder.calls:
            if call.bare and not call.climb(root):
                continue
            if self.trained & call.parts and not call.off:
                chosen.append(call)
        cached.refuse(chosen)
        return chosen

    # ------------------------------------------------------------------------------------------- the columns

    def measure(self):
        """Compute the columns, and further kinds of columns until they explain the gradient."""
        self.sample = Sample(self.optimizer, self.weights, self.gradients)
        if self.recorder.start is None:
            self.recorder.start = dict(self.weights.own)
        with passes.quiet(self.calls):
            self.calls = [call for call in self.calls if call.repeats()]
            if not self.calls:
                raise ValueError("no forward pass with gradient could be repeated from its tokens")
            self.columns = Columns(self.calls, self.weights, self.recording.options, self._ranks()[1])
            with self.weights.in_float32([call.module for call in self.calls]):
                self._explain()
                self.columns.close(self._coefficients())
                self.start_log_probs = self._at_start()

    def _explain(self):
        clock = gates_xray.Clock()
        self.temperatures = {}
        share = self._take(self._best((1.0, *self.recorder.temperatures)))
        seconds = clock() / len(self.temperatures)
        if self._ranks()[1] > 1:  # other ranks have the other columns
            return
        for kind in ("padding", "shift", "entropy", "kl", "router"):
            if gates_xray.explains(share, self.noise):
                return
            share = self._shifted(share) if kind == "shift" else self._with(kind, share)
        hopeless = len(self.kinds) > 1 or any(call.dropout for call in self.calls)
        if gates_xray.explains(share, self.noise) or hopeless or seconds * len(USUAL) > SEARCH:
            return
        best = self._best(USUAL)
        if gates_xray.explains(best[0], 0.0):
            self._take(best)

    def _shifted(self, share):
        """Take the log-probs at another position, if these explain most of what is left; return what is."""
        plain = [vars(each).copy() for each in (self, self.columns)]
        tried, temperatures = self.tried, self.temperatures.copy()
        with contextlib.suppress(TooLargeError):
            for shift in (0, 2) if share > gates_xray.MUCH else ():
                self.columns.begin(shift, padding=True)
                if len(self.columns.keys) > self.recording.options.columns:
                    break
                way = self._at(self.temperature)
                self.temperatures = temperatures.copy()
                tried.append([[f"log_prob {shift} before"], way[0]])
                if way[0] < gates_xray.BETTER * share:
                    left = self._take(way)
                    self.tried = tried
                    return left
        for each, before in zip((self, self.columns), plain, strict=True):
            vars(each).update(before)
        return share

    def _coefficients(self):
        """Return the coefficients of the columns, 0 where other ranks have columns of the same gradient."""
        return gates_xray.unexplained(self.sketch, self.gradient)[1] * (self._ranks()[1] == 1)

    def _best(self, temperatures):
        """Return the temperature of these, up to the first that explains, at which log-probs leave least."""
        best = None
        for temperature in dict.fromkeys(temperatures):
            tried = self._at(temperature)
            if best is None or tried[0] < best[0]:
                best = tried
            if gates_xray.explains(best[0], 0.0):
                break
        return best

    def _at(self, temperature):
        """Return what the columns of log-probs leave at a temperature, with all that belongs to it."""
        sketch, values, entropy = self.columns.log_probs(temperature)
        self.gradient = self._gradient()
        share, coefficients = gates_xray.unexplained(sketch, self.gradient)
        self.temperatures[str(temperature)] = share
        return share, coefficients, sketch, values, entropy, temperature

    def _take(self, tried):
        """Take the columns of log-probs of a temperature, and return what they leave."""
        share, coefficients, self.sketch, self.log_probs, self.entropy, self.temperature = tried
        self.kinds, self.tried = [["log_prob", len(self.sketch)]], [[["log_prob"], share]]
        self.noise = 0.0
        if self.norm:
            with self.weights.in_own_precision():
                self.noise = self.columns.noise(coefficients, self.sketch, self.gradient, self.temperature)
        return share

    def _gradient(self):
        """Return the sketch of what the optimizer was given, in the parameters that the columns reach."""
        given = {name: self.gradients[name] for name in self.weights.slots}
        apart = {name for name, value in given.items() if name not in self.columns.reached and numbers(value).any()}
        self.outside |= apart
        gradients = [mx.zeros_like(value) if name in apart else value for name, value in given.items()]
        self.norm = float(np.sqrt(sum((numbers(gradient) ** 2).sum() for gradient in gradients)))
        return self.columns.sketched(gradients)[0]

    def _with(self, kind, share):
        """Try columns of one more kind, keep them if they explain, and return what is left."""
        before = len(self.columns.keys)
        compute = {
            "padding": self._padding,
            "entropy": self._entropies,
            "kl": self._divergences,
            "router": self._routers,
        }
        more = compute[kind]()
        if more is None:
            return share
        sketch = np.concatenate([self.sketch, more])
        left, _ = gates_xray.unexplained(sketch, self.gradient)
        self.tried.append([[*(name for name, _ in self.kinds), kind], left])
        if gates_xray.explains(left, self.noise) or left < 0.1 * share:
            self.sketch = sketch
            self.kinds.append([kind, len(more)])
            return left
        if kind == "padding":
            self.columns.cut(before)
            self.log_probs, self.entropy = self.log_probs[:before], self.entropy[:before]
        return share

    def _padding(self):
        """Return columns for what looks like padding behind a row; they come after all columns of log-probs."""
        if all(call.masked or call.attended.all() for call in self.calls):
            return None
        first = len(self.columns.keys)
        self.columns.list_rows(padding=True)
        if len(self.columns.keys) > self.recording.options.columns:
            self.columns.cut(first)
            return None
        sketch, log_probs, entropy = self.columns.log_probs(self.temperature, first)
        self.log_probs = np.concatenate([self.log_probs, log_probs])
        self.entropy = np.concatenate([self.entropy, entropy])
        return sketch

    def _entropies(self):
        return self.columns.entropies(self.temperature)

    def _routers(self):
        """Return the columns of that form of the routers' loss which leaves least, None without routers."""
        best = None
        for columns in gates_xray_mlx_router.forms(self.columns):
            left, _ = gates_xray.unexplained(np.concatenate([self.sketch, columns]), self.gradient)
            if best is None or left < best[0]:
                best = (left, columns)
            if gates_xray.explains(left, self.noise):
                break
        return best and best[1]

    def _divergences(self):
        """Return columns of the KL to the starting weights, where it has no gradient before the first update."""
        return self.columns.divergences(self.recorder.start) if self.number > 1 and self._has_start() else None

    def _has_start(self):
        return all(name in self.recorder.start for name in self.weights.slots)

    def _at_start(self):
        """Return the log-probs at the weights before the first update."""
        if self.number == 1:
            return self.log_probs
        if not self._has_start():
            return np.full(len(self.columns.keys), np.nan)
        return self.columns.log_probs_at(self.recorder.start, self.temperature)

    # ------------------------------------------------------------------------------------------- the scorers

    def _scorers(self, arrays):
        """Add the log-probs of passes without gradient, and say who gave them."""
        index = {key: column for column, key in enumerate(self.columns.keys)}
        beside = [[call, self.number - 1] for call in self.recorder.calls if call not in self.calls and not call.bare]
        gathered = {}
        for call, made in [*self.recorder.scored, *beside]:
            by = self._who(call)
            first = {
                "values": np.full(len(index), np.nan),
                "rows": 0,
                "tokens": 0,
                "model": type(call.module).__name__,
                "lines": Lines(),
            }
            scorer = gathered.setdefault((by, id(call.module), made), first)
            if self._score(call, index, scorer["values"]):
                scorer["rows"] += len(call.ids)
                scorer["tokens"] += call.ids.size
                for row in range(len(call.ids)):
                    scorer["lines"].add(call.keys(row), call.attended[row].tolist())
        scorers, prompts = [], [self._prompt(row) for row in self.columns.rows]
        for (by, _, made), scorer in gathered.items():
            if scorer["rows"]:
                arrays[f"scored.{len(scorers)}"] = scorer["values"]
                lines = scorer["lines"].facts(self.columns.rows, prompts)
                scorers.append({"by": by, "model": scorer["model"], "update": made, **lines})
                self.recording.event("scored", by=by, rows=scorer["rows"], tokens=scorer["tokens"], update=made)
        return scorers

    def _score(self, call, index, values):
        """Repeat a pass for the columns that it scored; return whether there are any."""
        row_keys = [call.keys(row) for row in range(len(call.ids))]
        if not any(key in index for keys in row_keys for key in keys[1:]):
            return False
        if call.loop and not call.scored:
            return False
        with call.state.restored():
            if call.bare or not call.repeats():
                return False
            logits = call.logits()
            for row, keys in enumerate(row_keys):
                scores = log_probs_of(logits[row], call.tokens[row].tolist(), self.temperature)
                for position, key in enumerate(keys[1:], 1):
                    if key in index:
                        values[index[key]] = scores[position - 1]
        return True

    def _who(self, call):
        if self.trained & call.parts and not call.off:
            return "trained model"
        ours = set().union(*(own.parts for own in self.calls))
        return "trained model with adapters off" if call.off or ours & call.parts else "another model"

    # -------------------------------------------------------------------------------------------- the update

    def write(self, result):
        """Write the update, after the optimizer has made it."""
        updated = {name: value for name, value in tree_flatten(result) if isinstance(value, mx.array)}
        arrays = dict(self.sample.arrays)
        arrays["sample.after"] = self.sample.after(updated)
        arrays.update(
            sketch=self.sketch,
            gradient=self.gradient,
            log_probs=self.log_probs,
            entropy=self.entropy,
            start_log_probs=self.start_log_probs,
        )
        with passes.quiet(self.calls):
            scorers = self._scorers(arrays)
        self.recording.write(self.number, self._document(arrays, scorers), arrays)
        self.recording.event("update", update=self.number, seconds=round(self.clock(), 3))

    def _document(self, arrays, scorers):
        rank, ranks = self._ranks()
        dtypes = {str(value.dtype).removeprefix("mlx.core.") for value in self.weights.own.values()}
        pushed = arrays["sample.gradient"] != 0
        return {
            "format": gates_xray.FORMAT,
            "update": self.number,
            "framework": f"mlx {mx.__version__}",
            "rank": rank,
            "world_size": ranks,
            "model": type(self.calls[-1].module).__name__,
            "dtype": dtypes.pop() if len(dtypes) == 1 else "mixed",
            "autocast": None,
            "dropout": max(call.dropout for call in self.calls),
            "trained": {"tensors": len(self.weights.slots), "numbers": self.weights.size},
            "restricted": self.recording.options.parameters,
            "outside": sorted(self.outside)[:20],
            "optimizer": described(self.optimizer),
            "temperature": self.temperature,
            "temperatures": self.temperatures,
            "kinds": self.kinds,
            "tried": self.tried,
            "rows": [self._row(row) for row in self.columns.rows],
            "keys": self.columns.keys,
            "special": gates_xray.special_tokens(),
            "scorers": scorers,
            "noise": self.noise,
            "gradient_norm": self.norm,
            "clip": self._clip(),
            "clips": self._clips(),
            "identity": gates_xray.identity([id(self.root), *self.weights.own]),
            "moved": {
                "numbers": len(pushed),
                "with_gradient": int(pushed.sum()),
                "still": int((pushed & (arrays["sample.after"] == arrays["sample.before"])).sum()),
            },
            "shift": self.columns.shift,
            "bins": self.columns.bins,
            "seed": 0,
        }

    def _clip(self):
        if self.recorder.clip is None:
            return None
        clip = dict(zip(("norm", "limit"), map(float, self.recorder.clip), strict=True))
        self.recording.event("clip", update=self.number - 1, **clip)
        return clip if np.isfinite(clip["limit"]) else None

    def _clips(self):
        """Return the clips of this gradient's norm, each with how many of the passes came before it."""
        order = {id(call): place for place, call in enumerate(self.recorder.calls)}
        clips = []
        for (norm, limit), names, last in self.recorder.clips:
            if np.isfinite(float(limit)) and names & set(self.gradients):
                before = max((order.get(id(call), -1) for call in last), default=-1)
                passes_before = sum(order.get(id(call), len(order)) <= before for call in self.calls)
                clips.append({"norm": float(norm), "limit": float(limit), "passes": passes_before})
        return clips

    def _row(self, row):
        attended = row["attended"]
        return {
            "call": row["call"],
            "ids": row["ids"],
            "attended": attended,
            "columns": row["columns"],
            "prompt": self._prompt(row),
            "encoded": gates_xray_encoded.beginning(row["ids"], attended),
            "labels": None,
            "text": gates_xray.texts(row["ids"]),
            "texts": row.get("texts"),
        }

    def _prompt(self, row):
        lengths = (
            gates_xray.prompt_length(row["ids"], row["attended"], row["keys"], ends) for ends in self.recorder.ends
        )
        length = next((length for length in lengths if length is not None), None)
        return None if length is None or length >= sum(row["attended"]) else length

    def _ranks(self):
        group = self.recorder.group
        return (0, 1) if group is None else (group.rank(), group.size())
