"""One update of a PyTorch script.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import fnmatch

import gates_xray
import gates_xray_encoded
import gates_xray_torch_calls as calls
import gates_xray_torch_chance as chance
import gates_xray_torch_elsewhere as elsewhere
import gates_xray_torch_texts as texts
import numpy as np
import torch
from gates_xray_cannot import unfitted
from gates_xray_torch_columns import Columns, TooLargeError
from gates_xray_torch_optimizer import Sample

CHANCE = 1e-3  # share that is left, above which two passes are compared
PADDED = "trained model that attended to padding"  # its pass took no attention mask


class Update:
    """One update: its columns, its sketched gradient, and the optimizer's own numbers."""

    def __init__(self, recorder, optimizer, passes):
        self.recorder = recorder
        self.recording = recorder.recording
        self.given = optimizer
        inner = getattr(optimizer, "optim", None)  # ZeRO's, which moves and knows this rank's parameters only
        self.optimizer = inner if isinstance(inner, torch.optim.Optimizer) else optimizer
        self.calls = passes
        self.number = self.recording.made + 1
        self.clock = gates_xray.Clock()
        self.module = passes[-1].module
        self.parameters = self._fitted(optimizer)
        self.columns = Columns(passes, self.parameters, recorder.indices, recorder.vocabularies)
        self.dropout = calls.dropout(part for call in passes for part in call.module.modules())

    def _fitted(self, optimizer):
        names = {}
        for call in self.calls:
            for name, parameter in call.module.named_parameters():
                names.setdefault(id(parameter), (name, parameter))
        grouped = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        patterns = self.recording.options.parameters
        fitted = {}
        for parameter in grouped:
            name, _ = names.get(id(parameter), (None, None))
            if name is None or parameter.grad is None or not parameter.requires_grad:
                continue
            if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                fitted[name] = parameter
        if not fitted:
            raise unfitted(patterns)
        return fitted

    def measure(self):
        """Compute the columns, and further kinds of columns until they explain the gradient.

        Raises:
            TooLargeError: there are more columns, or more work, than was allowed.
        """
        columns, options = self.columns, self.recording.options
        if len(columns) > options.columns:
            raise TooLargeError(**columns.estimate(0.0))
        self.bins = gates_xray.bins_for(max(1, len(columns)), calls.ranks()[1])
        columns.open(self.bins)
        here = {id(parameter) for group in self.optimizer.param_groups for parameter in group["params"]}
        moved = {name: parameter for name, parameter in self.parameters.items() if id(parameter) in here}
        self.sampled = moved
        self.sample = Sample(self.optimizer, moved)
        if self.recorder.start is None:
            self.recorder.start = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        gradients = [parameter.grad for parameter in self.parameters.values()]
        self.norm = sum(float(gradient.detach().double().norm()) ** 2 for gradient in gradients) ** 0.5
        with calls.quiet(self.calls):
            self.gradient = columns.sketch.sketched(gradients)[0]
            self._explain()
            texts.give(self, self._special())
            first = self.number == 1
            self.start_log_probs = self.values if first else columns.at(self.recorder.start, self.temperature)
        much = gates_xray.unexplained(self.sketch, self.gradient)[0] > CHANCE + gates_xray.NOISES * self.noise
        self.chance = chance.of(self) if much and calls.ranks()[1] == 1 else None

    def _explain(self):
        """Take the temperature whose log-probs explain most, then add kinds of columns until nothing is left."""
        best, self.temperatures = None, {}
        for temperature in dict.fromkeys((1.0, self.recorder.temperature)):
            sketch, values, entropy = self.columns.log_probs(temperature, self.recording.options.seconds)
            share, coefficients = gates_xray.unexplained(sketch, self.gradient)
            self.temperatures[str(temperature)] = share
            if best is None or share < best[0]:
                best = (share, coefficients, sketch, values, entropy, temperature)
            if gates_xray.explains(share, 0.0):
                break
        share, coefficients, self.sketch, self.values, self.entropy, self.temperature = best
        self.kinds = [["log_prob", len(self.columns)]]
        self.noise = self.columns.noise(coefficients, self.sketch, self.temperature)
        self.tried = [[["log_prob"], share]]
        if not gates_xray.explains(share, self.noise) and calls.ranks()[1] == 1:  # other ranks have the other columns
            share = elsewhere.search(self, share)
        if not gates_xray.explains(share, self.noise) and calls.ranks()[1] == 1:
            self._try_more(share)

    def _try_more(self, share):
        columns = self.columns
        kinds = {
            "entropy": lambda: columns.entropies(self.temperature),
            "kl": lambda: (
                None if self.number == 1 else columns.divergences(self.recorder.start)
            ),  # at the start it is 0
            "router": columns.routers,
        }
        for kind, compute in kinds.items():
            more = compute()
            if more is None or not len(more):
                continue
            sketch = np.concatenate([self.sketch, more])
            left, _ = gates_xray.unexplained(sketch, self.gradient)
            self.tried.append([[*(name for name, _ in self.kinds), kind], left])
            if gates_xray.explains(left, self.noise) or left < 0.1 * share:
                self.sketch, share = sketch, left
                self.kinds.append([kind, len(more)])
                if gates_xray.explains(left, self.noise):
                    return

    def write(self):
        """Write the update, after the optimizer has made it."""
        arrays = self.sample.arrays()
        gradient = arrays["sample.gradient"] != 0
        arrays.update(
            sketch=self.sketch,
            gradient=self.gradient,
            log_probs=self.values,
            entropy=self.entropy,
            start_log_probs=self.start_log_probs,
        )
        scorers = self._scorers(arrays)
        rank, ranks = calls.ranks()
        dtypes = {str(parameter.dtype).removeprefix("torch.") for parameter in self.parameters.values()}
        in_module = {id(p) for call in self.calls for p in call.module.parameters()}
        outside = [
            p
            for group in self.optimizer.param_groups
            for p in group["params"]
            if p.grad is not None and id(p) not in in_module
        ]
        document = {
            "format": gates_xray.FORMAT,
            "update": self.number,
            "framework": f"torch {torch.__version__}",
            "rank": rank,
            "world_size": ranks,
            "model": type(self.module).__name__,
            "dtype": dtypes.pop() if len(dtypes) == 1 else "mixed",
            "autocast": self.calls[-1].autocast.named,
            "dropout": self.dropout,
            "chance": self.chance,
            "trained": {"tensors": len(self.parameters), "numbers": sum(p.numel() for p in self.parameters.values())},
            "restricted": self.recording.options.parameters,
            "outside": [f"{len(outside)} tensors outside of {type(self.module).__name__}"] if outside else [],
            "optimizer": {
                "name": type(self.optimizer).__name__,
                "groups": [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups],
            },
            "temperature": self.temperature,
            "temperatures": self.temperatures,
            "kinds": self.kinds,
            "tried": self.tried,
            "rows": [self._row(row) for row in self.columns.rows],
            "keys": self.columns.keys,
            "special": self._special(),
            "scorers": scorers,
            "noise": self.noise,
            "gradient_norm": self.norm,
            "clip": self.recorder.between.clip,
            "clips": self.recorder.between.clips(self.parameters.values(), self.calls, self.recorder.calls),
            "empty": self.recorder.between.empty(self.given),
            "missed": self.recorder.between.missed,
            "identity": gates_xray.identity((name, id(parameter)) for name, parameter in self.sampled.items()),
            "moved": {
                "numbers": len(gradient),
                "with_gradient": int(gradient.sum()),
                "still": int((gradient & (arrays["sample.after"] == arrays["sample.before"])).sum()),
            },
            "shift": self.columns.shift,
            "bins": self.bins,
            "seed": 0,
        }
        self.recording.write(self.number, document, arrays)
        self.recording.event("update", update=self.number, seconds=round(self.clock(), 3))

    def _row(self, row):
        call = self.calls[row["call"]]
        labels = call.labels
        usable = (
            isinstance(labels, torch.Tensor) and labels.shape == call.ids.shape and len(row["ids"]) == labels.shape[-1]
        )
        return {
            "call": row["call"],
            "ids": row["ids"],
            "attended": row["attended"],
            "columns": row["columns"],
            "prompt": self._prompt(row),
            "encoded": gates_xray_encoded.beginning(row["ids"], row["attended"]),
            "labels": labels[row["row"]].tolist() if usable else None,
            "text": self._text(row["ids"]),
            "texts": row.get("texts"),
        }

    def _prompt(self, row):
        length = gates_xray.prompt_length(row["ids"], row["attended"], row["keys"], self.recorder.ends)
        return None if length is None or length >= sum(row["attended"]) else length

    def _text(self, ids):
        tokenizer = self.recorder.tokenizer and self.recorder.tokenizer()
        if tokenizer is None:
            return None
        try:
            return [tokenizer.decode([token]) for token in ids]
        except Exception:  # text is a comfort
            return None

    def _special(self):
        """Return the ids that end a row, and the one that pads."""
        holders = [
            self.recorder.tokenizer and self.recorder.tokenizer(),
            getattr(self.module, "generation_config", None),
            getattr(self.module, "config", None),
        ]
        ends, pad = set(), None
        for holder in holders:
            value = getattr(holder, "eos_token_id", None)
            ends.update([value] if isinstance(value, int) else value if isinstance(value, (list, tuple)) else [])
            pad = getattr(holder, "pad_token_id", None) if pad is None else pad
        return {"eos": sorted(ends), "pad": pad}

    def _scorers(self, arrays):
        """Add the log-probs of passes without gradient, and say who gave them."""
        own = {id(parameter) for parameter in self.parameters.values()}
        scorers, prompts = [], [self._prompt(row) for row in self.columns.rows]
        for (module_id, off, made), by_temperature in self.recorder.scored.items():
            module = self.recorder.modules[module_id]()
            known = by_temperature.get(self.temperature, {})
            values = np.array([known.get(key, np.nan) for key in self.columns.keys])
            if module is None or np.isnan(values).all():
                continue
            ours = any(id(parameter) in own for parameter in module.parameters())
            by = "another model" if not ours else "trained model with adapters off" if off else "trained model"
            arrays[f"scored.{len(scorers)}"] = values
            lines = self.recorder.lines[module_id, off, made].facts(self.columns.rows, prompts)
            scorers.append({"by": by, "model": type(module).__name__, "update": made, **lines})
            padded = np.array(
                [known.get(key, np.nan) for key in gates_xray.padded_keys(self.columns.rows, len(self.columns.keys))]
            )
            if by == "trained model" and not np.isnan(padded).all():
                arrays[f"scored.{len(scorers)}"] = padded
                scorers.append({"by": PADDED, "model": type(module).__name__, "update": made})
        return scorers
