"""Passes with gradient that go on from a key-value cache: they are not recorded, and what their tokens show is said.

It runs in the interpreter of the script: standard library, NumPy and mlx only.
"""

from __future__ import annotations

import itertools

from gates_xray_cannot import CannotError

REASON = (
    "a forward pass with gradient goes on from a key-value cache, so that its tokens follow others which it was not given: record a run "
    "that scores whole rows, without steps or with one as long as the longest row"
)


def refuse(calls):
    """Refuse passes of which one goes on from a cache, and say which tokens are missing between them.

    Raises:
        CannotError: one does.
    """
    if not any(call.cached for call in calls):
        return
    missing = [count for first, second in itertools.pairwise(calls) if (count := _missing(first, second))]
    if not missing:
        raise CannotError(REASON)
    raise CannotError(
        f"{REASON}. Between {len(missing)} of its passes and the next, {sum(missing)} tokens in all are never scored: the first token of "
        "a pass is not the one that the pass before it scored last, so the steps do not overlap by one token"
    )


def _missing(first, second):
    """Return the number of rows in which a pass begins with another token than the one that the pass before it scored last."""
    follows = second.cached and second.cached == (first.cached or 0) + first.ids.shape[1]
    if not follows or second.module is not first.module or len(first.ids) != len(second.ids):
        return 0
    width = first.ids.shape[1]
    if first.tokens.shape[1] == width:  # what was scored last is not known
        return 0
    return int((first.tokens[:, width] != second.ids[:, 0]).sum())
