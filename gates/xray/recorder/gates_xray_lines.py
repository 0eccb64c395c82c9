"""Rows that were scored without gradient, each once: what a loop that samples has grown, and what a later pass scored whole."""

from __future__ import annotations


class Lines:
    """Rows as the keys of their attended tokens; the beginning of another row is none."""

    def __init__(self):
        self.whole = {}  # key of the last token to the keys of all
        self.inner = set()  # keys of the tokens before the last
        self.times = {}  # how often each was scored

    def add(self, row_keys, attended):
        """Add a row."""
        shown = [key for key, counts in zip(row_keys, attended, strict=True) if counts]
        if not shown or shown[-1] in self.inner:
            return
        for key in shown[:-1]:
            self.whole.pop(key, None)
        self.inner.update(shown[:-1])
        self.whole[shown[-1]] = frozenset(shown)
        self.times[shown[-1]] = self.times.get(shown[-1], 0) + 1

    def facts(self, rows, lengths):
        """Return what a scorer's entry says of an update's rows, whose prompts have these lengths, None where not known.

        `lines` counts those that begin with one of the prompts, each once, and `scored` all rows, each as often as it was
        scored; `times` says so of each of the update's rows.
        """
        ends = [[key for key, counts in zip(row["keys"], row["attended"], strict=True) if counts] for row in rows]
        prompts = {shown[length - 1] for shown, length in zip(ends, lengths, strict=True) if length}
        times = {key: self.times[key] for key in self.whole}
        return {
            "lines": sum(not prompts.isdisjoint(keys) for keys in self.whole.values()),
            "scored": sum(times.values()),
            "times": [times.get(shown[-1], 0) if shown else 0 for shown in ends],
        }
