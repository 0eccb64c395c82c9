"""Tokens that a script's own loop draws: each pass has the tokens drawn so far, and one more is drawn for each row after it.

It runs in the interpreter of the script: standard library only.
"""

from __future__ import annotations

MOST = 200_000  # tokens that are kept


class Draws:
    """The rows of the loop that is running.

    A row that ends leaves the loop: its next token is hidden, or another than was drawn. A token that is drawn after the last pass
    may be one too many.
    """

    def __init__(self, write):
        self._write = write  # called with prompt and completion of each row
        self._rows = []
        self._waiting = False
        self._kept = 0

    def given(self, rows):
        """See a pass without gradient over these attended tokens: the next of a loop, or the first of another."""
        if len(rows) != len(self._rows) or self._waiting or not all(map(_Row.follows, self._rows, rows)):
            self.flush()
            self._rows = [_Row(row) for row in rows]
        else:
            for row, tokens in zip(self._rows, rows, strict=True):
                row.see(tokens)
        self._waiting = True

    def drew(self, tokens):
        """See the tokens that were drawn after a pass."""
        if not self._waiting or len(tokens) != len(self._rows):
            return
        for row, token in zip(self._rows, tokens, strict=True):
            row.draw(token)
        self._waiting = False

    def flush(self):
        """Write the rows of the loop that is running: it is over."""
        for row in self._rows:
            self._kept += len(row.prompt) + len(row.drawn)
            if row.drawn and self._kept <= MOST:
                self._write(row.prompt, row.drawn)
        self._rows, self._waiting = [], False


class _Row:
    """A row of a loop: what it was given first, what was drawn since, and whether it has left."""

    def __init__(self, prompt):
        self.prompt, self.drawn, self.left = prompt, [], False

    def follows(self, tokens):
        """Return whether tokens are this row's, with the last that was drawn or without."""
        known = [*self.prompt, *self.drawn[: len(self.drawn) - 1]]
        return tokens[: len(known)] == known and (self.left or len(tokens) <= len(known) + 1)

    def see(self, tokens):
        """See what the loop has made of the token that was drawn last: where another stands in its place, it is kept."""
        known = [*self.prompt, *self.drawn]
        if not self.left and tokens != known:
            self.left = True
            if len(tokens) < len(known):
                self.drawn.pop()

    def draw(self, token):
        """Take a token that was drawn."""
        if not self.left:
            self.drawn.append(token)
