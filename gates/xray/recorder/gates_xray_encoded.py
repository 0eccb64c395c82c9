"""Texts that a tokenizer was given by themselves: where a row begins with one, that may be its prompt.

It runs in the interpreter of the script: standard library only.
"""

from __future__ import annotations

MOST = 5_000_000  # tokens of texts that are kept

_texts = set()  # a hash of each text's ids
_kept = 0


def keep(result):
    """Keep what a tokenizer has made of one text or of several; anything but lists of ids is left alone."""
    try:
        ids = result if isinstance(result, list) else result.get("input_ids")
        for text in ids if ids and isinstance(ids[0], list) else [ids]:
            _keep(text)
    except Exception:  # a text, or what a script's own tokenizer returns
        return


def _keep(ids):
    global _kept
    if isinstance(ids, list) and ids and isinstance(ids[0], int) and _kept < MOST:
        _kept += len(ids)
        _texts.add(hash(tuple(ids)))


def beginning(ids, attended):
    """Return how many attended tokens of a row are a text by themselves; None where that is no beginning, or not the only one.

    Where another text follows it, the row may be packed: documents one after the other.
    """
    shown = [int(token) for token, counts in zip(ids, attended, strict=True) if counts]
    lengths = _lengths(shown, len(shown) - 1)
    if len(lengths) != 1 or _lengths(shown[lengths[0] :], len(shown)):
        return None
    return lengths[0]


def _lengths(ids, most):
    """Return the lengths of the texts with which tokens begin; of one token, which may begin every text, where there is no longer one."""
    lengths = [length for length in range(1, most + 1) if hash(tuple(ids[:length])) in _texts]
    return [length for length in lengths if length > 1] or lengths
