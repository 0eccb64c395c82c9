"""The columns of an update of a PyTorch script.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import gates_xray
import gates_xray_torch_calls as calls
import numpy as np
import torch
from gates_xray_torch_sketch import CHUNK_BYTES, Sketch

ROUTER = ("aux_loss", "router_aux_loss")
SAME = 1e-5  # of their length: two passes of one model in float32 differ by less


class TooLargeError(Exception):
    """An update with more columns or work than was allowed."""

    def __init__(self, **facts):
        self.facts = facts
        super().__init__(
            f"the update is too large: {facts['columns']:,} columns of {facts['parameters']:,} parameters take about {facts['seconds']:.0f} s and "
            f"{facts['bytes'] / 2**30:.1f} GiB. Take fewer or shorter rows, a smaller model, or --parameters 'NAME*' to fit some "
            "parameters only, such as the adapters' or the last layer's; --columns and --seconds raise the limits"
        )


class Columns:
    """The columns of an update: a row each of tokens, and a column for each token that follows others.

    Attributes:
        calls: the forward passes that the script made with gradient.
        parameters: by name, those that are fitted.
        rows: of all passes, in their order.
        keys: of each column.
        shift: how many positions before a token the scores lie from which its log-prob is taken; 1 in a language model.
        seen: how many columns are of scores at tokens that the attention mask shows; the others follow them.
    """

    def __init__(self, passes, parameters, indices, vocabularies):
        self.calls = passes
        self.parameters = parameters
        self.vocabularies = vocabularies
        for call in self.calls:
            if call.last is None:
                call.last = calls.last_targets(call.ids, indices)
        self.list_rows()

    def __len__(self):
        """Return the number of columns of log-probs."""
        return len(self.keys)

    def open(self, bins):
        """Choose the number of bins."""
        self.sketch = Sketch(self.parameters.values(), bins)
        self.bins = bins

    def list_rows(self, shift=1, *, hidden=False):
        """Give a column to each token that scores precede, once for equal tokens after equal tokens.

        Args:
            shift: how many positions before a token its scores lie.
            hidden: also where the attention mask hides the token at which the scores lie.
        """
        self.shift, self.rows, self.keys, self._known = shift, [], [], {}
        for index, call in enumerate(self.calls):
            for row in range(call.ids.shape[0]):
                ids, attended = call.tokens(row)
                columns, row_keys = [-1] * len(ids), gates_xray.keys(ids, attended)
                self.rows.append(
                    {"call": index, "row": row, "ids": ids, "attended": attended, "columns": columns, "keys": row_keys}
                )
        self._give_columns(1)
        self.seen = len(self.keys)
        if hidden:
            self._give_columns(0)

    def _give_columns(self, shown):
        """Give columns to the tokens whose scores lie where the attention mask is 1, or where it is 0."""
        for row in self.rows:
            ids, attended, row_keys = row["ids"], row["attended"], row["keys"]
            length = self.calls[row["call"]].ids.shape[1]  # a last target has no scores
            front = next((k for k, counts in enumerate(attended) if counts), 0)
            for position in range(self.shift, min(len(ids), length + self.shift)):
                source = position - self.shift
                if attended[source] != shown:
                    continue
                key = row_keys[position]
                if self.shift != 1 or not shown:  # such a score is no next token's: its key is its own
                    hidden_at = "" if shown else source
                    key = gates_xray.key_elsewhere(ids[position], row_keys[source], self.shift, hidden_at)
                if (front, key) not in self._known:
                    self._known[front, key] = len(self._known)
                    self.keys.append(key)
                row["columns"][position] = self._known[front, key]

    def merge(self, sketch):
        """Join columns of hidden scores that are equal, such as those of padding that the model gives one position.

        Args:
            sketch: (columns, bins), from the first hidden one on.

        Returns:
            The indices of those that are kept.
        """
        kept, place, norms = [], list(range(self.seen)), np.linalg.norm(sketch, axis=1)
        for column in range(len(sketch)):
            if not np.isfinite(norms[column]):  # of a token that attends to nothing
                place.append(-1)
                continue
            apart = np.linalg.norm(sketch[kept] - sketch[column], axis=1) if kept else np.array([])
            near = np.flatnonzero(apart <= SAME * norms[column])
            place.append(self.seen + int(near[0]) if len(near) else self.seen + len(kept))
            if not len(near):
                kept.append(column)
        self.keys = self.keys[: self.seen] + [self.keys[self.seen + column] for column in kept]
        for row in self.rows:
            row["columns"] = [place[column] if column >= 0 else -1 for column in row["columns"]]
        return kept

    def log_probs(self, temperature, most_seconds):
        """Return the sketched columns, the log-probs and the entropies."""
        sketch = np.zeros((len(self), self.bins))
        values, entropies = np.full(len(self), np.nan), np.full(len(self), np.nan)
        done = set()
        began, counted = gates_xray.Clock(), 0
        for row in self.rows:
            new = self._new(row, done)
            if not new:
                continue
            logits = self.row_logits(row)
            scores = torch.log_softmax(logits.float() / temperature, -1)
            before = torch.tensor([k - self.shift for k in new], device=scores.device)
            targets = torch.tensor([row["ids"][k] for k in new], device=scores.device)
            picked = scores[before, targets]
            at = [row["columns"][k] for k in new]
            values[at] = picked.detach().double().cpu().numpy()
            entropies[at] = -(scores[before].exp() * scores[before]).sum(-1).detach().double().cpu().numpy()
            sketch[at] = self.sketch.of(picked)
            counted += len(new)
            expected = began() / counted * len(self)
            if expected > most_seconds:
                raise TooLargeError(**self.estimate(expected))
        return sketch, values, entropies

    def entropies(self, temperature):
        """Return a column for the entropy at each place."""

        def entropy(_row, logits, positions):
            scores = torch.log_softmax(logits[positions - self.shift].float() / temperature, -1)
            return -(scores.exp() * scores).sum(-1)

        return self._columns_of(entropy)

    def divergences(self, start):
        """Return a column for the KL to other weights at each place."""

        def divergence(row, logits, positions):
            with torch.no_grad():
                theirs = self.row_logits(row, start)[positions - self.shift].float().log_softmax(-1)
            scores = torch.log_softmax(logits[positions - self.shift].float(), -1)
            return (scores.exp() * (scores - theirs)).sum(-1)

        return self._columns_of(divergence)

    def routers(self):
        """Return a column for the router's loss of each forward pass, where the model gives one."""
        columns = []
        for call in self.calls:
            with call.autocast():
                output = call.module(*call.args, **call.kwargs)
            loss = next((getattr(output, name) for name in ROUTER if getattr(output, name, None) is not None), None)
            if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
                return None
            columns.append(self.sketch.of(loss.reshape(1)))
        return np.concatenate(columns)

    def noise(self, coefficients, sketch, temperature):
        """Return what a backward pass of the script's own batches adds to the columns' sum, as a share."""
        share = dict.fromkeys(range(len(coefficients)), 0)
        for row in self.rows:
            for column in row["columns"]:
                if column >= 0:
                    share[column] += 1
        total, at = None, 0
        for call in self.calls:
            with call.autocast():
                logits = calls.logits_of(call.module(*call.args, **call.kwargs), self.vocabularies)
            logits = logits.reshape(*call.ids.shape, logits.shape[-1])
            scores = torch.log_softmax(logits.float() / temperature, -1)
            loss = 0.0
            for row in self.rows[at : at + len(call.ids)]:
                places = [k for k, column in enumerate(row["columns"]) if column >= 0]
                if not places:
                    continue
                weight = torch.tensor([coefficients[row["columns"][k]] / share[row["columns"][k]] for k in places])
                before = torch.tensor([k - self.shift for k in places])
                targets = torch.tensor([row["ids"][k] for k in places])
                picked = scores[row["row"], before.to(scores.device), targets.to(scores.device)]
                loss = loss + (picked * weight.to(picked)).sum()
            at += len(call.ids)
            if not isinstance(loss, torch.Tensor):
                continue
            part = self.sketch.sketched(torch.autograd.grad(loss, list(self.parameters.values()), allow_unused=True))[0]
            total = part if total is None else total + part
        if total is None:
            return 0.0
        return float(np.linalg.norm(total - coefficients @ sketch)) / max(
            float(np.linalg.norm(coefficients @ sketch)), 1e-300
        )

    def at(self, weights, temperature):
        """Return the log-probs at other weights, NaN where they are not those of these parameters."""
        result, done = np.full(len(self), np.nan), set()
        same = all(name in self.parameters for name in weights)
        for row in self.rows if same else ():
            new = self._new(row, done)
            if not new:
                continue
            with torch.no_grad():
                scores = torch.log_softmax(self.row_logits(row, weights).float() / temperature, -1)
            for k in new:
                result[row["columns"][k]] = float(scores[k - self.shift, row["ids"][k]])
        return result

    def estimate(self, seconds):
        """Return what TooLargeError says, for columns that take so many seconds."""
        columns = len(self)
        return {
            "columns": columns,
            "parameters": sum(parameter.numel() for parameter in self.parameters.values()),
            "seconds": seconds,
            "bytes": gates_xray.bins_for(max(1, columns), calls.ranks()[1]) * columns * 8 + CHUNK_BYTES,
        }

    def _columns_of(self, quantity):
        """Return the sketched gradients of a quantity at each place that has a column."""
        sketch, done = np.zeros((len(self), self.bins)), set()
        for row in self.rows:
            new = self._new(row, done)
            if not new:
                continue
            logits = self.row_logits(row)
            values = quantity(row, logits, torch.tensor(new, device=logits.device))
            sketch[[row["columns"][k] for k in new]] = self.sketch.of(values)
        return sketch

    def row_logits(self, row, weights=None):
        """Return the logits (T, V) of one row by itself."""
        call = self.calls[row["call"]]
        args, kwargs = call.row(row["row"])
        with call.autocast():
            if weights is None:
                output = call.module(*args, **kwargs)
            else:
                output = torch.func.functional_call(call.module, weights, args, kwargs)
        logits = calls.logits_of(output, self.vocabularies)
        if logits is None:
            raise ValueError(f"{type(call.module).__name__} gave no logits for one row by itself")
        return logits.reshape(-1, logits.shape[-1])

    @staticmethod
    def _new(row, done):
        """Return the places of a row whose columns are not done yet, and take them as done."""
        places = [k for k, column in enumerate(row["columns"]) if column >= 0 and column not in done]
        done.update(row["columns"][k] for k in places)
        return places
