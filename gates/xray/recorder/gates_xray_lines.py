"""Rows that were scored without gradient, each once: what a loop that samples has grown, and what a later pass scored whole."""

from __future__ import annotations


class Lines:
    """Rows as the keys of their attended tokens; the beginning of another row is none."""

    def __init__(self):
        self.whole = {}  # key of the last token to the keys of all
        self.inner = set()  # keys of the tokens before the last

    def add(self, row_keys, attended):
        """Add a row."""
        shown = [key for key, counts in zip(row_keys, attended, strict=True) if counts]
        if not shown or shown[-1] in self.inner:
            return
        for key in shown[:-1]:
            self.whole.pop(key, None)
        self.inner.update(shown[:-1])
        self.whole[shown[-1]] = frozenset(shown)

    def count(self, rows, lengths):
        """Return how many begin with a prompt of an update's rows, whose prompts have these lengths, None where not known."""
        prompts = set()
        for row, length in zip(rows, lengths, strict=True):
            shown = [key for key, counts in zip(row["keys"], row["attended"], strict=True) if counts]
            prompts.update([shown[length - 1]] if length else [])
        return sum(not prompts.isdisjoint(keys) for keys in self.whole.values())
