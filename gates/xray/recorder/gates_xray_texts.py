"""Rows with several texts: each but the last ends with a token that ends a row, and another stands behind it.

It runs in the interpreter of the script: standard library only.
"""

from __future__ import annotations

MOST = 8  # rows of an update in which the texts are compared


def starts(ids, attended, ends, pad=None):
    """Return the positions at which further texts of a row begin: behind a token that ends a row, and what stands before it."""
    places, begun, ended = [], False, False
    for position, (token, counts) in enumerate(zip(ids, attended, strict=True)):
        if not counts:
            continue
        if token in ends:
            ended = begun
        elif ended and token != pad:
            places.append(position)
            ended = False
        else:
            begun = True
    return places


def otherwise(ids, attended, ends, stop):
    """Return a row in which each token before a position is another of the row's, but for those that end it; None where there is one only."""
    pool = sorted({token for token, counts in zip(ids, attended, strict=True) if counts and token not in ends})
    if len(pool) < 2:
        return None
    following = dict(zip(pool, [*pool[1:], pool[0]], strict=True))
    return [following.get(token, token) if place < stop else token for place, token in enumerate(ids)]


def give(rows, special, log_probs):
    """Say in each row with several texts (`texts`) where these begin, and how much the later ones depend on the first.

    Args:
        rows: with `ids` and `attended`.
        special: ids that end a row, `eos`, and the one that pads, `pad`.
        log_probs: function of a row and its ids that returns the log-prob of each token but the first.
    """
    ends, count = set(special["eos"]), 0
    for row in rows:
        places = starts(row["ids"], row["attended"], ends, special["pad"])
        if places and count < MOST:
            count += 1
            row["texts"] = {"starts": places, "apart": _apart(row, places[0], ends, log_probs)}


def _apart(row, start, ends, log_probs):
    """Return by how many nats a later text's tokens change at most when the first text is another."""
    try:
        ids, attended = row["ids"], row["attended"]
        others = otherwise(ids, attended, ends, start)
        if others is None:
            return None
        pairs = zip(log_probs(row, ids), log_probs(row, others), strict=True)
        apart = [abs(a - b) for place, (a, b) in enumerate(pairs, 1) if place > start and attended[place]]
        return max(apart, default=None)
    except Exception:  # a reading less
        return None
