"""Columns for scores that lie elsewhere than before an attended token: at padding that a mask hides, or without the shift.

They are tried where the columns of next tokens leave much of a gradient. It runs in the interpreter of the script: standard library,
NumPy and torch only.
"""

from __future__ import annotations

import gates_xray
from gates_xray_torch_columns import TooLargeError


def search(update, share):
    """Give an update the columns that explain its gradient best, and return what they leave.

    Args:
        update: with the columns of next tokens.
        share: what those leave.
    """
    began = gates_xray.Clock()
    hidden = any(0 in row["attended"] for row in update.columns.rows)
    ways = [(1, True)] * hidden + [(shift, hidden) for shift in (0, 2)] * (share > gates_xray.MUCH)
    best, plain = None, _Way(update, share)
    for shift, behind in ways:
        if began() > update.recording.options.seconds:
            break
        tried = _tried(update, shift, hidden=behind)
        if tried is not None and tried.share < (best or plain).share:
            best = tried
        if best is not None and gates_xray.explains(best.share, plain.noise):
            break
    better = best is not None and (
        gates_xray.explains(best.share, plain.noise) or best.share < gates_xray.BETTER * share
    )
    (best if better else plain).taken()
    return update.share


def _tried(update, shift, *, hidden):
    """Return what the columns of a way leave, None where there are too many."""
    columns, options = update.columns, update.recording.options
    columns.list_rows(shift, hidden=hidden)
    if len(columns) > options.columns:
        return None
    update.bins = max(update.bins, gates_xray.bins_for(max(1, len(columns))))
    columns.open(update.bins)
    try:
        sketch, values, entropy = columns.log_probs(update.temperature, options.seconds)
    except TooLargeError:
        return None
    kept = [*range(columns.seen), *(columns.seen + column for column in columns.merge(sketch[columns.seen :]))]
    update.sketch, update.values, update.entropy = sketch[kept], values[kept], entropy[kept]
    update.gradient = columns.sketch.sketched([parameter.grad for parameter in update.parameters.values()])[0]
    share, coefficients = gates_xray.unexplained(update.sketch, update.gradient)
    update.noise = columns.noise(coefficients, update.sketch, update.temperature)
    update.kinds = [["log_prob", columns.seen], ["padding", len(columns) - columns.seen]][: 1 + hidden]
    name = "log_prob" if shift == 1 else f"log_prob {shift} before"
    update.tried.append([[name, *["padding"] * hidden], share])
    return _Way(update, share)


class _Way:
    """The columns of an update as they are now."""

    def __init__(self, update, share):
        columns = update.columns
        self.update, self.share, self.noise = update, share, update.noise
        self._update = {
            name: getattr(update, name)
            for name in ("bins", "sketch", "values", "entropy", "gradient", "noise", "kinds")
        }
        self._columns = {name: getattr(columns, name) for name in ("shift", "seen", "rows", "keys", "sketch", "bins")}

    def taken(self):
        """Give them to the update."""
        vars(self.update).update(self._update, share=self.share)
        vars(self.update.columns).update(self._columns)
