"""Record the updates of a PyTorch script: which log-probs its gradient is made of.

It runs in the interpreter of the script: standard library, NumPy and torch only. docs/xray.md says what is measured and has the
format. The script's model is used in place, at the weights before the update, in evaluation mode and without its state of
random numbers; what it had is given back.
"""

from __future__ import annotations

import collections
import contextlib
import fnmatch
import functools
import math
import os
import sys
import traceback
import weakref

import gates_xray
import numpy as np
import torch

DROPPED = ("logits_to_keep", "num_logits_to_keep", "labels", "past_key_values", "num_items_in_batch", "return_loss")
REQUEST = (
    "do_sample",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "typical_p",
    "repetition_penalty",
    "max_new_tokens",
    "max_length",
)
CHUNK_BYTES = 256 << 20  # of gradients that are held at once
SCORERS = 8  # most passes without gradient that are kept, by model and by weights
ROUTER = ("aux_loss", "router_aux_loss")


class Call:
    """A forward pass that gave logits: its module, what it was given, and the tokens.

    Attributes:
        module: the innermost module that takes token ids and gives logits.
        ids: (B, T), on the CPU.
        attended: (B, T), 1 where the attention mask is, or everywhere.
    """

    def __init__(self, module, args, kwargs, ids):
        self.module = module
        self.args = tuple(_held(value) for value in args)
        self.kwargs = {name: _held(value) for name, value in kwargs.items() if name not in DROPPED}
        if "use_cache" in self.kwargs:
            self.kwargs["use_cache"] = False
        self.labels = _held(kwargs.get("labels"))
        self.ids = ids.detach().cpu().reshape(-1, ids.shape[-1])
        self.flat = ids.ndim == 1
        mask = kwargs.get("attention_mask")
        usable = isinstance(mask, torch.Tensor) and mask.shape == ids.shape
        self.attended = (mask.detach().cpu() != 0).long() if usable else torch.ones_like(self.ids)
        self.last = _last_targets(self.ids, (*args, *kwargs.values()))
        self.autocast = _autocast(ids.device.type)

    def tokens(self, row):
        """Return the tokens of a row and whether each is attended; its last target too, where the model was not given that."""
        ids, attended = self.ids[row].tolist(), self.attended[row].tolist()
        if self.last is None or int(self.last[row]) < 0:
            return ids, attended
        return [*ids, int(self.last[row])], [*attended, attended[-1]]

    def row(self, index):
        """Return the arguments for one row."""
        rows = self.ids.shape[0]

        def cut(value):
            sliced = isinstance(value, torch.Tensor) and not self.flat and value.ndim and value.shape[0] == rows
            return value[index : index + 1] if sliced else value

        return tuple(map(cut, self.args)), {name: cut(value) for name, value in self.kwargs.items()}


class Recorder:
    """Sees forward passes, generation, clipping and optimizer steps of one process."""

    def __init__(self, recording):
        self.recording = recording
        self.busy = False  # its own passes
        self.generating = 0
        self.calls = []
        self.inside = []  # modules whose forward passes have begun and not ended
        self.claimed = False  # whether the outermost of them has given logits
        self.bases = []  # passes through models without their heads inside the outermost one
        self.heads = weakref.WeakKeyDictionary()  # of such models, the module that holds the head too
        self.scored = {}  # (module's id, adapters off, updates before) to {key: log-prob}, at each temperature
        self.modules = {}  # a weak reference by module's id
        self.ends = set()
        self.hashed = 0
        self.temperature = 1.0
        self.clip = None
        self.start = None
        self.open = {}  # updates between the hooks before and after, by optimizer's id
        self.vocabularies = set()
        self.tokenizer = None
        self.indices = collections.deque(maxlen=256)  # whole numbers by which scores were picked since the last update

    # ------------------------------------------------------------------------------------------ what hooks see

    def before_forward(self, module, args):
        """See that a forward pass begins."""
        if not self.busy and self.recording.wanted and not _in_backward():
            if not self.inside:
                self.claimed, self.bases = False, []
            self.inside.append(id(module))

    def after_forward(self, module, args, kwargs, output):
        """See a forward pass of any module; of one that raised, `output` is None."""
        if self.busy or not self.recording.wanted or _in_backward():
            return
        if id(module) in self.inside:  # passes that an exception ended are above it
            del self.inside[self.inside.index(id(module)) :]
        if isinstance(module, torch.nn.Embedding):
            self.vocabularies.add(module.num_embeddings)
            if (
                not self.inside and torch.is_grad_enabled() and _ids(args, {}) is not None
            ):  # the model's `forward` was called directly
                self.bases.append((module, args, {}, args[0]))
        else:
            ids = _ids(args, kwargs)
            if ids is not None:
                self._with_ids(module, args, kwargs, ids, output)
        if not self.inside and self.bases and not self.claimed:
            self._without_head()

    def _with_ids(self, module, args, kwargs, ids, output):
        """See a forward pass that was given token ids."""
        logits = _logits(output, self.vocabularies)
        if logits is None:
            if _hidden(output) is not None:
                self.bases.append((module, args, kwargs, ids))
        elif not self.claimed:  # the innermost module that gives logits; wrappers around it pass them on
            self.claimed = bool(self.inside)
            self.bases = []
            self._scored(Call(module, args, kwargs, ids), logits)

    def _scored(self, call, logits):
        if torch.is_grad_enabled() and (logits is None or logits.requires_grad):
            self.calls.append(call)
            if sum(len(call.ids) for call in self.calls) > gates_xray.MOST_ROWS:
                del self.calls[0]
        elif not self.generating:
            self._without_gradient(call, logits)

    def _without_head(self):
        """Take passes through a model whose head the script applies itself as passes through the module that holds both."""
        module, args, kwargs, ids = self.bases[0]
        self.bases = []
        if (
            self.generating
            or not any(parameter.requires_grad for parameter in module.parameters())
            and torch.is_grad_enabled()
        ):
            return
        if module not in self.heads:
            head = self._head_of(module, args, kwargs)
            self.heads[module] = head and weakref.ref(head)
        head = self.heads[module] and self.heads[module]()
        if head is None:
            return
        call = Call(head, args, kwargs, ids)
        if torch.is_grad_enabled():
            self._scored(call, None)
            return
        self.busy = True
        try:
            with call.autocast():
                logits = _logits(head(*call.args, **call.kwargs), self.vocabularies)
        finally:
            self.busy = False
        if logits is not None:
            self._scored(call, logits)

    def _head_of(self, module, args, kwargs):
        """Return the smallest module that holds a model without its head and gives logits for the same arguments."""
        self.busy = True
        state = torch.random.get_rng_state()
        try:
            for holder in _holders(module):
                with contextlib.suppress(Exception), torch.no_grad():
                    kept = {name: value for name, value in kwargs.items() if name not in DROPPED}
                    if _logits(holder(*args, **kept), self.vocabularies) is not None:
                        return holder
        finally:
            torch.random.set_rng_state(state)
            self.busy = False
        return None

    def _without_gradient(self, call, logits):
        """Keep the log-probs of a pass without gradient, and where what it was given ends."""
        if logits.ndim == 2:
            logits = logits[None]
        length = call.ids.shape[1]
        if length < 2 or logits.shape[0] != call.ids.shape[0]:
            return
        self.hashed += call.ids.numel()
        if self.hashed > gates_xray.MOST_HASHED:
            return
        kept = logits.shape[1]
        first = length - kept  # position of the first logits
        off = any(getattr(part, "disable_adapters", False) is True for part in call.module.modules())
        scorer = (id(call.module), off, self.recording.made)
        self.modules[id(call.module)] = weakref.ref(call.module)
        known = self.scored.setdefault(scorer, {})
        while len(self.scored) > SCORERS:
            del self.scored[next(iter(self.scored))]
        temperatures = {1.0, self.temperature}
        for row in range(call.ids.shape[0]):
            attended = call.attended[row].tolist()
            row_keys = gates_xray.keys(call.ids[row].tolist(), attended)
            last = max((k for k, counts in enumerate(attended) if counts), default=None)
            if last is not None:
                self.ends.add(row_keys[last])
            targets = call.ids[row, first + 1 :].to(logits.device)
            if not len(targets):
                continue
            for temperature in temperatures:
                scores = torch.log_softmax(logits[row, :-1].float() / temperature, -1)
                values = scores.gather(-1, targets[:, None])[:, 0].tolist()
                at = known.setdefault(temperature, {})
                for position, value in enumerate(values, first + 1):
                    at[row_keys[position]] = value

    def before_generate(self, ids, mask):
        """Keep where the prompts of a generation end."""
        if not isinstance(ids, torch.Tensor) or ids.ndim != 2:
            return
        attended = mask.long() if isinstance(mask, torch.Tensor) and mask.shape == ids.shape else torch.ones_like(ids)
        for row, counts in zip(ids.tolist(), attended.tolist()):
            last = max((k for k, count in enumerate(counts) if count), default=None)
            if last is not None:
                self.ends.add(gates_xray.keys(row, counts)[last])

    def before_step(self, optimizer, args, kwargs):
        """Measure the columns of an update that an optimizer is about to make."""
        if self.busy or not self.recording.wanted:
            return
        moved = [
            parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.grad is not None
        ]
        if not moved:
            return
        self.recording.trains()
        try:
            calls = self._calls_of(moved)
            if calls:
                self.busy = True
                update = Update(self, optimizer, calls)
                update.measure()
                self.open[id(optimizer)] = update
            else:
                self._unseen(optimizer)
        except TooLarge as large:
            self.recording.event("too large", **large.facts)
            gates_xray.say(str(large))
            self.recording.recorded = self.recording.options.updates
        except Exception as error:  # the script goes on, whatever happens here
            self._failed(error)
        finally:
            self.busy = False

    def after_step(self, optimizer, args, kwargs):
        """Write the update that the optimizer has made."""
        if self.busy:
            return
        update = self.open.pop(id(optimizer), None)
        if update is None:
            return
        try:
            self.recording.made += 1
            update.write()
        except Exception as error:
            self._failed(error)
        self.calls, self.clip, self.hashed = [], None, 0
        self.indices.clear()
        if self.recording.options.stop and not self.recording.wanted:
            gates_xray.say("the updates are recorded; the script is stopped")
            raise SystemExit(0)

    def _calls_of(self, moved):
        """Return the passes through modules that hold one of these parameters."""
        ours = set(map(id, moved))
        holding = {}
        for call in self.calls:
            if id(call.module) not in holding:
                holding[id(call.module)] = any(id(parameter) in ours for parameter in call.module.parameters())
        return [call for call in self.calls if holding[id(call.module)]]

    def _unseen(self, optimizer):
        if any(_sharded(parameter) for group in optimizer.param_groups for parameter in group["params"]):
            self.recording.cannot(
                "the parameters are sharded (FSDP, ZeRO or tensor parallel): run one process with a tiny model, or record a step for "
                "`gates judge`"
            )
            self.recording.recorded = self.recording.options.updates
            return
        self.recording.event(
            "cannot",
            reason=f"an update of {type(optimizer).__name__} came without a forward pass that gave logits for token ids with gradient",
        )

    def _failed(self, error):
        where = traceback.extract_tb(error.__traceback__)[-1]
        self.recording.cannot(
            f"an update could not be recorded: {type(error).__name__}: {str(error)[:300]} ({os.path.basename(where.filename)}:{where.lineno})"
        )
        if os.environ.get("GATES_XRAY_DEBUG"):
            traceback.print_exception(error)


class TooLarge(Exception):
    """An update with more columns or work than was allowed."""

    def __init__(self, **facts):
        self.facts = facts
        super().__init__(
            f"the update is too large: {facts['columns']:,} columns of {facts['parameters']:,} parameters take about {facts['seconds']:.0f} s and "
            f"{facts['bytes'] / 2**30:.1f} GiB. Take fewer or shorter rows, a smaller model, or --parameters 'NAME*' to fit some "
            "parameters only, such as the adapters' or the last layer's; --columns and --seconds raise the limits"
        )


class Update:
    """One update: its columns, its sketched gradient, and the optimizer's own numbers."""

    def __init__(self, recorder, optimizer, calls):
        self.recorder = recorder
        self.recording = recorder.recording
        self.optimizer = optimizer
        self.calls = calls
        self.number = self.recording.made + 1
        self.clock = gates_xray.Clock()
        self.module = calls[-1].module
        self.parameters = self._fitted()
        self.columns = {}  # (padding in front, key) to index
        self.rows = []
        self.keys = []
        self._batched = None  # whether batched backward passes work, once it is known
        self.dropout = max((part.p for part in self.module.modules() if _drops(part)), default=0.0)

    def _fitted(self):
        names = {}
        for call in self.calls:
            for name, parameter in call.module.named_parameters():
                names.setdefault(id(parameter), (name, parameter))
        grouped = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        patterns = self.recording.options.parameters
        fitted = {}
        for parameter in grouped:
            name, _ = names.get(id(parameter), (None, None))
            if name is None or parameter.grad is None or not parameter.requires_grad:
                continue
            if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
                fitted[name] = parameter
        if not fitted:
            raise ValueError(f"no parameter with a gradient fits the patterns {patterns}")
        if any(_sharded(parameter) for parameter in fitted.values()):
            raise ValueError("the parameters are sharded: run one process with a tiny model")
        return fitted

    # ------------------------------------------------------------------------------------------- the columns

    def measure(self):
        """Compute the columns, and further kinds of columns until they explain the gradient."""
        self._list_rows()
        if len(self.columns) > self.recording.options.columns:
            raise TooLarge(**self._estimate(0.0))
        ranks = _ranks()[1]
        self.bins = gates_xray.bins_for(max(1, len(self.columns)), ranks)
        self._sample()
        if self.recorder.start is None:
            self.recorder.start = {name: parameter.detach().clone() for name, parameter in self.parameters.items()}
        with _quiet(self.calls):
            self.gradient = self._sketched([parameter.grad for parameter in self.parameters.values()])[0]
            self.norm = float(
                sum(float(parameter.grad.detach().double().norm()) ** 2 for parameter in self.parameters.values())
                ** 0.5
            )
            self._explain()
            self.start_log_probs = self._at_start()

    def _list_rows(self):
        """Give a column to each token that follows other tokens, once for equal tokens after equal tokens."""
        for call in self.calls:
            if call.last is None:
                call.last = _last_targets(call.ids, self.recorder.indices)
        for index, call in enumerate(self.calls):
            for row in range(call.ids.shape[0]):
                ids, attended = call.tokens(row)
                row_keys = gates_xray.keys(ids, attended)
                front = next((k for k, counts in enumerate(attended) if counts), 0)
                columns = [-1] * len(ids)
                for position in range(front + 1, len(ids)):
                    if not attended[position - 1]:
                        continue
                    identity = (front, row_keys[position])
                    if identity not in self.columns:
                        self.columns[identity] = len(self.columns)
                        self.keys.append(row_keys[position])
                    columns[position] = self.columns[identity]
                self.rows.append(
                    {"call": index, "row": row, "ids": ids, "attended": attended, "columns": columns, "keys": row_keys}
                )

    def _explain(self):
        temperatures = {}
        best = None
        for temperature in dict.fromkeys((1.0, self.recorder.temperature)):
            sketch, values, entropy = self._log_prob_columns(temperature)
            share, coefficients = gates_xray.unexplained(sketch, self.gradient)
            temperatures[str(temperature)] = share
            if best is None or share < best[0]:
                best = (share, coefficients, sketch, values, entropy, temperature)
            if gates_xray.explains(share, 0.0):
                break
        share, coefficients, self.sketch, self.values, self.entropy, self.temperature = best
        self.temperatures = temperatures
        self.kinds = [["log_prob", len(self.columns)]]
        self.noise = self._noise(coefficients, self.sketch)
        self.tried = [[["log_prob"], share]]
        if gates_xray.explains(share, self.noise) or _ranks()[1] > 1:  # other ranks have the other columns
            return
        for kind, columns in (
            ("entropy", self._entropy_columns),
            ("kl", self._kl_columns),
            ("router", self._router_columns),
        ):
            more = columns()
            if more is None or not len(more):
                continue
            sketch = np.concatenate([self.sketch, more])
            left, _ = gates_xray.unexplained(sketch, self.gradient)
            self.tried.append([["log_prob", kind], left])
            if gates_xray.explains(left, self.noise) or left < 0.1 * share:
                self.sketch, share = sketch, left
                self.kinds.append([kind, len(more)])
                if gates_xray.explains(left, self.noise):
                    return

    def _log_prob_columns(self, temperature):
        """Return the sketched columns, the log-probs and the entropies."""
        sketch = np.zeros((len(self.columns), self.bins))
        values, entropies = np.full(len(self.columns), np.nan), np.full(len(self.columns), np.nan)
        done = set()
        began, counted = gates_xray.Clock(), 0
        for row in self.rows:
            new = [k for k, column in enumerate(row["columns"]) if column >= 0 and column not in done]
            if not new:
                continue
            done.update(row["columns"][k] for k in new)
            logits = self._row_logits(row)
            scores = torch.log_softmax(logits.float() / temperature, -1)
            before = torch.tensor([k - 1 for k in new], device=scores.device)
            targets = torch.tensor([row["ids"][k] for k in new], device=scores.device)
            picked = scores[before, targets]
            at = [row["columns"][k] for k in new]
            values[at] = picked.detach().double().cpu().numpy()
            entropies[at] = -(scores[before].exp() * scores[before]).sum(-1).detach().double().cpu().numpy()
            sketch[at] = self._vectors(picked)
            counted += len(new)
            expected = began() / counted * len(self.columns)
            if expected > self.recording.options.seconds:
                raise TooLarge(**self._estimate(expected))
        return sketch, values, entropies

    def _entropy_columns(self):
        def entropy(row, logits, positions):
            scores = torch.log_softmax(logits[positions - 1].float() / self.temperature, -1)
            return -(scores.exp() * scores).sum(-1)

        return self._columns_of(entropy)

    def _kl_columns(self):
        if self.number == 1:
            return None  # the KL to the starting weights has no gradient there

        def divergence(row, logits, positions):
            with torch.no_grad():
                start = self._row_logits(row, self.recorder.start)[positions - 1].float().log_softmax(-1)
            scores = torch.log_softmax(logits[positions - 1].float(), -1)
            return (scores.exp() * (scores - start)).sum(-1)

        return self._columns_of(divergence)

    def _columns_of(self, quantity):
        """Return the sketched gradients of a quantity at each place that has a column."""
        sketch, done = np.zeros((len(self.columns), self.bins)), set()
        for row in self.rows:
            new = [k for k, column in enumerate(row["columns"]) if column >= 0 and column not in done]
            if not new:
                continue
            done.update(row["columns"][k] for k in new)
            logits = self._row_logits(row)
            values = quantity(row, logits, torch.tensor(new, device=logits.device))
            sketch[[row["columns"][k] for k in new]] = self._vectors(values)
        return sketch

    def _router_columns(self):
        """Return a column for the router's loss of each forward pass, where the model gives one."""
        columns = []
        for call in self.calls:
            with call.autocast():
                output = call.module(*call.args, **call.kwargs)
            loss = next((getattr(output, name) for name in ROUTER if getattr(output, name, None) is not None), None)
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                return None
            columns.append(self._vectors(loss.reshape(1)))
        return np.concatenate(columns)

    def _row_logits(self, row, weights=None):
        """Return the logits (T, V) of one row by itself."""
        call = self.calls[row["call"]]
        args, kwargs = call.row(row["row"])
        with call.autocast():
            if weights is None:
                output = call.module(*args, **kwargs)
            else:
                output = torch.func.functional_call(call.module, weights, args, kwargs)
        logits = _logits(output, self.recorder.vocabularies)
        if logits is None:
            raise ValueError(f"{type(call.module).__name__} gave no logits for one row by itself")
        return logits.reshape(-1, logits.shape[-1])

    def _vectors(self, values):
        """Return the sketched gradients (n, bins) of n numbers."""
        parameters = list(self.parameters.values())
        size = sum(parameter.numel() for parameter in parameters) * 4
        at_once = max(1, min(len(values), CHUNK_BYTES // size))
        parts = []
        for start in range(0, len(values), at_once):
            chunk = values[start : start + at_once]
            parts.append(self._sketched(self._gradients(chunk, parameters, keep=start + at_once < len(values))))
        return np.concatenate(parts)

    def _gradients(self, values, parameters, keep):
        """Return the gradients (n, …) of n numbers in each parameter."""
        one_hot = torch.eye(len(values), device=values.device, dtype=values.dtype)
        if len(values) > 1 and self._batched is not False:
            try:  # the graph stays at the first try, since an operation may have no batched backward pass
                gradients = torch.autograd.grad(
                    values,
                    parameters,
                    one_hot,
                    retain_graph=keep or not self._batched,
                    allow_unused=True,
                    is_grads_batched=True,
                )
            except RuntimeError:
                self._batched = False
            else:
                self._batched = True
                return gradients
        each = [torch.autograd.grad(values, parameters, row, retain_graph=True, allow_unused=True) for row in one_hot]
        return [
            None
            if all(gradient is None for gradient in column)
            else torch.stack([torch.zeros_like(parameter) if gradient is None else gradient for gradient in column])
            for column, parameter in zip(zip(*each), parameters)
        ]

    def _sketched(self, gradients):
        """Return the sketch (n, bins) of gradients (n, …), or of one gradient."""
        rows = None
        for index, (parameter, gradient) in enumerate(zip(self.parameters.values(), gradients)):
            if gradient is None:
                continue
            gradient = gradient.detach()
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            flat = gradient.reshape(-1, parameter.numel())
            wide = torch.float64 if flat.device.type != "mps" else torch.float32
            if rows is None:
                rows = torch.zeros(len(flat), self.bins, dtype=wide, device=flat.device)
            where, sign = _hashes(index, parameter.numel(), self.bins, flat.device, wide)
            rows.index_add_(1, where, flat.to(wide) * sign)
        return np.zeros((1, self.bins)) if rows is None else rows.cpu().double().numpy()

    def _noise(self, coefficients, sketch):
        """Return what a backward pass of the script's own batches adds to the columns' sum, as a share of the gradient."""
        if not self.norm:
            return 0.0
        share, seen = dict.fromkeys(range(len(coefficients)), 0), {}
        for row in self.rows:
            for column in row["columns"]:
                if column >= 0:
                    share[column] += 1
        total, at = None, 0
        for call in self.calls:
            with call.autocast():
                logits = _logits(call.module(*call.args, **call.kwargs), self.recorder.vocabularies)
            logits = logits.reshape(*call.ids.shape, logits.shape[-1])
            scores = torch.log_softmax(logits.float() / self.temperature, -1)
            loss = 0.0
            for row in self.rows[at : at + len(call.ids)]:
                places = [k for k, column in enumerate(row["columns"]) if column >= 0]
                if not places:
                    continue
                weight = torch.tensor([coefficients[row["columns"][k]] / share[row["columns"][k]] for k in places])
                before = torch.tensor([k - 1 for k in places])
                targets = torch.tensor([row["ids"][k] for k in places])
                picked = scores[row["row"], before.to(scores.device), targets.to(scores.device)]
                loss = loss + (picked * weight.to(picked)).sum()
            at += len(call.ids)
            if not isinstance(loss, torch.Tensor):
                continue
            part = self._sketched(torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True))[0]
            total = part if total is None else total + part
        if total is None:
            return 0.0
        return float(np.linalg.norm(total - coefficients @ sketch)) / max(float(np.linalg.norm(self.gradient)), 1e-300)

    def _at_start(self):
        """Return the log-probs at the weights before the first update."""
        if self.number == 1:
            return self.values
        result, done = np.full(len(self.columns), np.nan), set()
        same = all(name in self.parameters for name in self.recorder.start)
        for row in self.rows if same else ():
            new = [k for k, column in enumerate(row["columns"]) if column >= 0 and column not in done]
            if not new:
                continue
            done.update(row["columns"][k] for k in new)
            with torch.no_grad():
                scores = torch.log_softmax(self._row_logits(row, self.recorder.start).float() / self.temperature, -1)
            for k in new:
                result[row["columns"][k]] = float(scores[k - 1, row["ids"][k]])
        return result

    # -------------------------------------------------------------------------------------------- the update

    def _sample(self):
        """Keep single weights with their gradients and the optimizer's state."""
        group_of = {id(p): k for k, group in enumerate(self.optimizer.param_groups) for p in group["params"]}
        total = sum(parameter.numel() for parameter in self.parameters.values())
        generator = torch.Generator().manual_seed(1)
        self._places, arrays = {}, {"group": [], "before": [], "gradient": []}
        states = {}
        for name, parameter in self.parameters.items():
            many = min(parameter.numel(), max(16, gates_xray.SAMPLE * parameter.numel() // total))
            place = (
                torch.randperm(parameter.numel(), generator=generator)[:many]
                if parameter.numel() < 1 << 24
                else torch.randint(parameter.numel(), (many,), generator=generator)
            )
            place = place.to(parameter.device)
            self._places[name] = place
            arrays["group"].append(np.full(many, group_of[id(parameter)], np.int64))
            arrays["before"].append(_picked(parameter.data, place))
            arrays["gradient"].append(_picked(parameter.grad, place))
            states[name] = (
                many,
                {
                    key: value
                    for key, value in self.optimizer.state.get(parameter, {}).items()
                    if isinstance(value, (int, float))
                    or (isinstance(value, torch.Tensor) and value.numel() in {1, parameter.numel()})
                },
            )
        for key in sorted({key for _, state in states.values() for key in state}):
            parts = []
            for name, (many, state) in states.items():
                value = state.get(key)
                if (
                    isinstance(value, torch.Tensor)
                    and value.numel() == self.parameters[name].numel()
                    and value.numel() > 1
                ):
                    parts.append(_picked(value, self._places[name]))
                else:
                    parts.append(np.full(many, np.nan if value is None else float(value)))
            arrays[f"state.{key}"] = parts
        self._kept = {f"sample.{name}": np.concatenate(parts) for name, parts in arrays.items()}

    def write(self):
        """Write the update, after the optimizer has made it."""
        arrays = dict(self._kept)
        arrays["sample.after"] = np.concatenate(
            [_picked(parameter.data, self._places[name]) for name, parameter in self.parameters.items()]
        )
        gradient = arrays["sample.gradient"] != 0
        arrays.update(
            sketch=self.sketch,
            gradient=self.gradient,
            log_probs=self.values,
            entropy=self.entropy,
            start_log_probs=self.start_log_probs,
        )
        scorers = self._scorers(arrays)
        rank, ranks = _ranks()
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
            "rows": [self._row(row) for row in self.rows],
            "keys": self.keys,
            "special": self._special(),
            "scorers": scorers,
            "noise": self.noise,
            "gradient_norm": self.norm,
            "clip": self.recorder.clip,
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

    def _row(self, row):
        call = self.calls[row["call"]]
        labels = call.labels
        usable = (
            isinstance(labels, torch.Tensor) and labels.shape == call.ids.shape and len(row["ids"]) == labels.shape[-1]
        )
        length = gates_xray.prompt_length(row["ids"], row["attended"], row["keys"], self.recorder.ends)
        whole = sum(row["attended"])
        return {
            "call": row["call"],
            "ids": row["ids"],
            "attended": row["attended"],
            "columns": row["columns"],
            "prompt": None if length is None or length >= whole else length,
            "labels": labels[row["row"]].tolist() if usable else None,
            "text": self._text(row["ids"]),
        }

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
        scorers = []
        for (module_id, off, made), by_temperature in self.recorder.scored.items():
            module = self.recorder.modules[module_id]()
            known = by_temperature.get(self.temperature, {})
            values = np.array([known.get(key, np.nan) for key in self.keys])
            if module is None or np.isnan(values).all():
                continue
            ours = any(id(parameter) in own for parameter in module.parameters())
            by = "another model" if not ours else "trained model with adapters off" if off else "trained model"
            arrays[f"scored.{len(scorers)}"] = values
            scorers.append({"by": by, "model": type(module).__name__, "update": made})
        return scorers

    def _estimate(self, seconds):
        columns = len(self.columns)
        return {
            "columns": columns,
            "parameters": sum(parameter.numel() for parameter in self.parameters.values()),
            "seconds": seconds,
            "bytes": gates_xray.bins_for(max(1, columns), _ranks()[1]) * columns * 8 + CHUNK_BYTES,
        }


# ------------------------------------------------------------------------------------------------- helpers


def _held(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


def _ids(args, kwargs):
    """Return the token ids that a module was given: whole numbers, (B, T) or (T,)."""
    for value in (kwargs.get("input_ids"), *args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            whole = value.dtype in {torch.int64, torch.int32} and value.ndim in {1, 2}
            return value if whole else None
    return None


def _tensors(output):
    """Yield what may be logits: an attribute or item of that name, the output itself, or its first tensors."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        yield output.get("logits")
    elif isinstance(output, (tuple, list)):
        yield from output[:2]
    else:
        yield getattr(output, "logits", None)


def _logits(output, vocabularies):
    named = isinstance(output, dict) or not isinstance(output, (torch.Tensor, tuple, list))
    for value in _tensors(output):
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim in {2, 3}:
            if named or value.shape[-1] in vocabularies:
                return value
    return None


def _hidden(output):
    value = getattr(output, "last_hidden_state", None)
    return output if value is None and isinstance(output, torch.Tensor) and output.is_floating_point() else value


def _holders(part):
    """Return the modules that hold a module, the smallest first."""
    import gc

    modules = (item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module))
    holders = [module for module in modules if module is not part and any(inner is part for inner in module.modules())]
    return sorted(holders, key=lambda module: sum(1 for _ in module.modules()))


def _last_targets(ids, candidates):
    """Return the token after the last of each row, where `candidates` hold the same tokens one position earlier; else None.

    Many scripts give a model all tokens but the last, and score the tokens from the second on.
    """
    rows, length = ids.shape
    for value in candidates:
        if (
            not isinstance(value, torch.Tensor)
            or value.is_floating_point()
            or value.numel() != ids.numel()
            or length < 2
        ):
            continue
        shifted = value.detach().cpu().reshape(rows, length)
        counted = shifted[:, :-1] >= 0
        same = (shifted[:, :-1] == ids[:, 1:]) & counted
        if counted.any() and int(same.sum()) > 0.9 * int(counted.sum()) and not torch.equal(shifted, ids):
            return shifted[:, -1]
    return None


def _in_backward():
    """Return whether this is a backward pass, in which checkpoints compute a forward pass again."""
    return torch._C._current_graph_task_id() != -1


def _drops(part):
    return isinstance(part, torch.nn.Dropout) and part.training and part.p > 0


def _sharded(parameter):
    return (
        hasattr(parameter, "device_mesh") or hasattr(parameter, "ds_id") or type(parameter).__name__ == "FlatParameter"
    )


def _ranks():
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _picked(tensor, places):
    dense = tensor.detach().to_dense() if tensor.is_sparse else tensor.detach()
    return dense.reshape(-1)[places].double().cpu().numpy()


@functools.lru_cache(maxsize=256)
def _hashes(index, size, bins, device, dtype):
    """Return the bin and the sign of each number of a parameter, by its index among the fitted parameters."""
    generator = torch.Generator().manual_seed(1_000_003 * index + 17)
    where = torch.randint(1 << 30, (size,), generator=generator) % bins
    sign = (torch.randint(2, (size,), generator=generator) * 2 - 1).to(dtype)
    return where.to(device), sign.to(device)


def _autocast(device):
    """Return a context that repeats the automatic casts of this moment."""
    try:
        enabled = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device)
    except TypeError:  # torch before 2.4
        enabled, dtype = torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

    def context():
        return torch.autocast(device, dtype) if enabled else contextlib.nullcontext()

    context.named = str(dtype).removeprefix("torch.") if enabled else None
    return context


@contextlib.contextmanager
def _quiet(calls):
    """Let the modules compute without dropout, checkpoints or a change of random numbers, and give back what they had."""
    parts = {id(part): part for call in calls for part in call.module.modules()}.values()
    training = [part for part in parts if part.training]
    checkpointing = [part for part in parts if getattr(part, "gradient_checkpointing", False) is True]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        try:
            for part in training:
                part.training = False
            for part in checkpointing:
                part.gradient_checkpointing = False
            yield
        finally:
            for part in training:
                part.training = True
            for part in checkpointing:
                part.gradient_checkpointing = True


# ------------------------------------------------------------------------------------------------- the hooks

_recorder = None


def install():
    """Watch this process: forward passes, optimizer steps and clipping."""
    global _recorder
    if _recorder is not None:
        return
    recording = gates_xray.recording()
    _recorder = Recorder(recording)
    from torch.nn.modules import module
    from torch.optim import optimizer

    module.register_module_forward_pre_hook(_recorder.before_forward)
    module.register_module_forward_hook(_recorder.after_forward, with_kwargs=True, always_call=True)
    optimizer.register_optimizer_step_pre_hook(_recorder.before_step)
    optimizer.register_optimizer_step_post_hook(_recorder.after_step)
    _watch_clipping()
    _watch_indices()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    recording.event(
        "start", framework=f"torch {torch.__version__}", python=sys.version.split()[0], rank=rank, world_size=ranks
    )


def _watch_clipping():
    from torch.nn import utils

    original = utils.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
        norm = original(parameters, max_norm, *args, **kwargs)
        limit = float(max_norm)
        _recorder.clip = {"norm": float(norm), "limit": limit if math.isfinite(limit) else None}
        _recorder.recording.event("clip", update=_recorder.recording.made, **_recorder.clip)
        return norm

    utils.clip_grad_norm_ = utils.clip_grad.clip_grad_norm_ = clip_grad_norm_


def _watch_indices():
    """Keep the whole numbers by which scores are picked: the targets of a loss, where the model was not given them."""

    def watching(original, position, name):
        @functools.wraps(original)
        def function(*args, **kwargs):
            if not _recorder.busy and _recorder.recording.wanted and torch.is_grad_enabled():
                index = kwargs.get(name, args[position] if len(args) > position else None)
                if isinstance(index, torch.Tensor) and index.dtype == torch.int64:
                    _recorder.indices.append(index)
            return original(*args, **kwargs)

        return function

    functional = torch.nn.functional
    functional.cross_entropy = watching(functional.cross_entropy, 1, "target")
    functional.nll_loss = watching(functional.nll_loss, 1, "target")
    torch.gather = watching(torch.gather, 2, "index")
    torch.Tensor.gather = watching(torch.Tensor.gather, 2, "index")


def install_generation():
    """Watch transformers' `generate`: what it was asked, as it holds after the model's own defaults."""
    from transformers.generation import utils

    mixin = utils.GenerationMixin
    generate, prepare = mixin.generate, mixin._prepare_generation_config
    asked = []

    @functools.wraps(prepare)
    def prepared(self, *args, **kwargs):
        result = prepare(self, *args, **kwargs)
        asked.append(result[0] if isinstance(result, tuple) else result)
        return result

    @functools.wraps(generate)
    def watched(self, *args, **kwargs):
        if _recorder is None or _recorder.busy:
            return generate(self, *args, **kwargs)
        _recorder.generating += 1
        asked.clear()
        try:
            output = generate(self, *args, **kwargs)
        finally:
            _recorder.generating -= 1
        with contextlib.suppress(Exception):
            ids = kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))
            _recorder.before_generate(ids, kwargs.get("attention_mask"))
            config = asked[0] if asked else self.generation_config
            request = {name: getattr(config, name, None) for name in REQUEST}
            if request.get("do_sample") and request.get("temperature"):
                _recorder.temperature = float(request["temperature"])
            sequences = getattr(output, "sequences", output)
            _recorder.recording.event(
                "generate",
                prompts=len(ids),
                request=request,
                completions=len(sequences),
                update=_recorder.recording.made,
            )
        return output

    mixin.generate, mixin._prepare_generation_config = watched, prepared


def install_tokenizer():
    """Remember the tokenizer that the script uses, for the text of its tokens."""
    from transformers import tokenization_utils_base

    base = tokenization_utils_base.PreTrainedTokenizerBase
    for name in ("__call__", "apply_chat_template", "batch_decode", "decode"):
        original = getattr(base, name, None)
        if original is not None:
            setattr(base, name, _remembering(original))


def _remembering(original):
    @functools.wraps(original)
    def method(self, *args, **kwargs):
        if _recorder is not None:
            _recorder.tokenizer = weakref.ref(self)
        return original(self, *args, **kwargs)

    return method
