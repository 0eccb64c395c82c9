"""What the recorder for PyTorch sees of a script.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import collections
import contextlib
import os
import traceback
import weakref

import gates_xray
import gates_xray_cannot as cannot
import gates_xray_torch_between as between
import gates_xray_torch_calls as calls
import torch
from gates_xray_draws import Draws
from gates_xray_lines import Lines
from gates_xray_torch_columns import TooLargeError
from gates_xray_torch_update import Update

SHARDED = (
    "the parameters are sharded (FSDP, ZeRO 3 or tensor parallel), so that no process holds a whole gradient: run one process, without "
    "sharding, on a tiny model, or record a step for `gates judge`"
)
IN_BACKWARD = (
    "the optimizer steps inside of the backward pass, parameter by parameter, so that the gradient is never whole: switch that off for "
    "the X-ray (hooks of register_post_accumulate_grad_hook, LOMO, layer-wise optimizers), and call step() after backward()"
)
IN_CLOSURE = "the gradient is computed inside of optimizer.step, by its closure: call backward() before it, and step() without a closure"
SCORERS = 8  # most passes without gradient that are kept, by model and by weights


class Recorder:
    """Sees forward passes, generation, clipping and optimizer steps of one process."""

    def __init__(self, recording, recorded):
        self.recording = recording
        self._recorded = recorded  # called when the last update is recorded, or none can be
        self.busy = False  # its own passes
        self.generating = 0
        self.calls = []
        self.inside = []  # modules whose forward passes have begun and not ended
        self.claimed = False  # whether the outermost of them has given logits
        self.bases = []  # passes through models without their heads inside the outermost one
        self.heads = weakref.WeakKeyDictionary()  # of such models, the module that holds the head too
        self.draws = Draws(self._drawn)  # by the script's own loop
        self.scored = {}  # (module's id, adapters off, updates before) to {key: log-prob}, at each temperature
        self.lines = {}  # the same to the rows that were scored
        self.modules = {}  # a weak reference by module's id
        self.ends = set()
        self.hashed = 0
        self.temperature = 1.0
        self.between = between.Between()
        self.start = None
        self.trained = {}  # the parameters of the last update by name
        self.open = {}  # updates between the hooks before and after, by optimizer's id
        self.vocabularies = set()
        self.tokenizer = gates_xray.tokenizer
        self.hooked = False  # whether the script has asked to be called for each gradient inside of the backward pass
        self.indices = collections.deque(maxlen=256)  # whole numbers by which scores were picked since the last update

    # ------------------------------------------------------------------------------------------ what hooks see

    def before_forward(self, module, args):
        """See that a forward pass begins."""
        if not self.busy and self.recording.wanted and not calls.in_backward():
            if not self.inside:
                self.claimed, self.bases = False, []
            self.inside.append(id(module))

    def after_forward(self, module, args, *rest):
        """See a forward pass of any module; of one that raised, the output is None, and torch leaves the keyword arguments out."""
        kwargs, output = rest if len(rest) > 1 else ({}, rest[0])
        if self.busy or not self.recording.wanted or calls.in_backward():
            return
        if id(module) in self.inside:  # passes that an exception ended are above it
            del self.inside[self.inside.index(id(module)) :]
        if isinstance(module, torch.nn.Embedding):
            self.vocabularies.add(module.num_embeddings)
            if (
                not self.inside and torch.is_grad_enabled() and calls.token_ids(args, {}) is not None
            ):  # the model's `forward` was called directly
                self.bases.append((module, args, {}, args[0]))
        else:
            ids = calls.token_ids(args, kwargs)
            if ids is not None:
                self._with_ids(module, args, kwargs, ids, output)
        if not self.inside and self.bases and not self.claimed:
            self._without_head()

    def _with_ids(self, module, args, kwargs, ids, output):
        """See a forward pass that was given token ids."""
        logits = calls.logits_of(output, self.vocabularies)
        if logits is None:
            if calls.hidden_of(output) is not None:
                self.bases.append((module, args, kwargs, ids))
        elif not self.claimed:  # the innermost module that gives logits; wrappers around it pass them on
            self.claimed = bool(self.inside)
            self.bases = []
            self._scored(calls.Call(module, args, kwargs, ids), logits)

    def _scored(self, call, logits):
        if torch.is_grad_enabled() and (logits is None or logits.requires_grad):
            self.calls.append(call)
            if sum(len(call.ids) for call in self.calls) > gates_xray.MOST_ROWS:
                del self.calls[0]
        elif not self.generating:
            self.draws.given(call.shown())
            self._without_gradient(call, logits)

    def _drawn(self, prompt, completion):
        self.recording.event("drawn", prompt=prompt, completion=completion, update=self.recording.made)

    def drew(self, weights, tokens):
        """See tokens that were drawn by weights over a vocabulary, one a row."""
        if self.busy or self.generating or not self.recording.wanted or weights.shape[-1] not in self.vocabularies:
            return
        self.draws.drew(tokens.detach().reshape(-1).tolist())

    def _without_head(self):
        """Take passes through a model whose head the script applies itself as passes through the module that holds both."""
        module, args, kwargs, ids = self.bases[0]
        self.bases = []
        frozen = not any(parameter.requires_grad for parameter in module.parameters())
        if self.generating or (frozen and torch.is_grad_enabled()):
            return
        if module not in self.heads:
            head = self._head_of(module, args, kwargs)
            self.heads[module] = head and weakref.ref(head)
        head = self.heads[module] and self.heads[module]()
        if head is None:
            return
        call = calls.Call(head, args, kwargs, ids)
        if torch.is_grad_enabled():
            self._scored(call, None)
            return
        self.busy = True
        try:
            with call.autocast():
                logits = calls.logits_of(head(*call.args, **call.kwargs), self.vocabularies)
        finally:
            self.busy = False
        if logits is not None:
            self._scored(call, logits)

    def _head_of(self, module, args, kwargs):
        """Return the smallest module that holds a model without its head and gives logits for the same arguments."""
        self.busy = True
        state = torch.random.get_rng_state()
        try:
            for holder in calls.holders(module):
                with contextlib.suppress(Exception), torch.no_grad():
                    kept = {name: value for name, value in kwargs.items() if name not in calls.DROPPED}
                    if calls.logits_of(holder(*args, **kept), self.vocabularies) is not None:
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
        lines = self.lines.setdefault(scorer, Lines())
        temperatures = {1.0, self.temperature}
        for row in range(call.ids.shape[0]):
            attended = call.attended[row].tolist()
            row_keys = gates_xray.keys(call.ids[row].tolist(), attended)
            last = max((k for k, counts in enumerate(attended) if counts), default=None)
            if last is not None:
                self.ends.add(row_keys[last])
            lines.add(row_keys, attended)
            targets = call.ids[row, first + 1 :].to(logits.device)
            if not len(targets):
                continue
            for temperature in temperatures:
                scores = torch.log_softmax(logits[row, :-1].float() / temperature, -1)
                values = scores.gather(-1, targets[:, None])[:, 0].tolist()
                at = known.setdefault(temperature, {})
                for position, value in enumerate(values, first + 1):
                    at[self._key(call, row, row_keys, position)] = value

    @staticmethod
    def _key(call, row, row_keys, position):
        """Return the key of a token, by the token before it, at which its scores lie."""
        if call.attended[row, position - 1]:
            return row_keys[position]
        token = int(call.ids[row, position])
        return gates_xray.key_elsewhere(token, row_keys[position - 1], 1, position - 1)

    def before_generate(self, ids, mask):
        """Keep where the prompts of a generation end."""
        if not isinstance(ids, torch.Tensor) or ids.ndim != 2:
            return
        attended = mask.long() if isinstance(mask, torch.Tensor) and mask.shape == ids.shape else torch.ones_like(ids)
        for row, counts in zip(ids.tolist(), attended.tolist(), strict=True):
            last = max((k for k, count in enumerate(counts) if count), default=None)
            if last is not None:
                self.ends.add(gates_xray.keys(row, counts)[last])

    def before_step(self, optimizer, args, kwargs):
        """Measure the columns of an update that an optimizer is about to make."""
        self.open.pop(id(optimizer), None)  # of a step that raised
        if (
            self.busy or self.open or not self.recording.wanted
        ):  # an open one is around this: ZeRO's, of its own optimizer
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        moved = [parameter for parameter in parameters if parameter.grad is not None]
        reason = _refused(parameters, moved, args, kwargs)
        if reason is not None:
            self._never(reason)
        if reason is not None or not moved:
            self._without_gradient_of(optimizer)
            return
        self.recording.trains()
        self.draws.flush()
        try:
            passes = self._calls_of(moved)
            if passes:
                self.busy = True
                update = Update(self, optimizer, passes)
                self.trained = update.parameters
                update.measure()
                self.open[id(optimizer)] = update
            elif between.without_gradient(moved):
                self._without_gradient_of(optimizer)
            else:
                self._unseen(optimizer)
        except TooLargeError as large:
            self.recording.event("too large", **large.facts)
            gates_xray.say(str(large))
            self._finish()
        except Exception as error:  # the script goes on, whatever happens here
            self._failed(error)
        finally:
            self.busy = False
        self.between.missed += id(optimizer) not in self.open

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
        self.calls, self.hashed = [], 0
        self.between.begin(optimizer)
        self.indices.clear()
        if self.recording.wanted:
            return
        self._recorded()
        if self.recording.options.stop:
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

    def _without_gradient_of(self, optimizer):
        """See a step of an optimizer without any gradient."""
        ran = [self.modules[module_id]() for module_id, *_ in self.scored] + [call.module for call in self.calls]
        with contextlib.suppress(TypeError):  # an optimizer that cannot be held weakly
            self.between.stepped(optimizer, [module for module in ran if module is not None])

    def _unseen(self, optimizer):
        self.recording.event(
            "cannot",
            reason=f"an update of {type(optimizer).__name__} came without a forward pass that gave logits for token ids with gradient",
        )

    def _never(self, reason):
        """Say why no update of this script can be recorded, and look for none."""
        self.recording.cannot(reason)
        self._finish()

    def _finish(self):
        """Look for no further update."""
        self.recording.recorded = self.recording.options.updates
        self._recorded()

    def end(self):
        """Say at the end why a script that trains inside of its backward passes was not seen to make an update."""
        if self.hooked and self.recording.wanted and not self.recording.made:
            self._never(IN_BACKWARD)

    def _failed(self, error):
        self.recording.cannot(cannot.sentence(error))
        if os.environ.get("GATES_XRAY_DEBUG"):
            traceback.print_exception(error)


def _refused(parameters, moved, args, kwargs):
    """Return why an update cannot be recorded, None if it can."""
    if calls.in_backward():
        return IN_BACKWARD
    if any(calls.sharded(parameter) for parameter in parameters):
        return SHARDED
    if not moved and any(map(callable, (*args, *kwargs.values()))):
        return IN_CLOSURE
    return None
