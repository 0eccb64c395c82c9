"""Rows of a PyTorch script that hold several texts: whether the later ones attend to the first, and whether positions begin anew.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import inspect

import gates_xray_texts
import gates_xray_torch_calls as calls
import torch


def give(update, special):
    """Say in the rows that hold several texts what is known of these."""

    def log_probs(row, ids):
        return _log_probs(update, row, ids)

    gates_xray_texts.give(update.columns.rows, special, log_probs)
    for row in update.columns.rows:
        if "texts" in row:
            row["texts"]["positions"] = _positions(update.calls[row["call"]], row, row["texts"]["starts"])


def _log_probs(update, row, ids):
    """Return the log-probs of a row's tokens from the second on, with other tokens in it."""
    call = update.calls[row["call"]]
    args, kwargs = call.row(row["row"])
    given = calls.token_ids(args, kwargs)
    width = given.shape[-1]
    changed = torch.tensor(ids[:width], dtype=given.dtype, device=given.device).reshape(given.shape)
    args = tuple(changed if value is given else value for value in args)
    kwargs = {name: changed if value is given else value for name, value in kwargs.items()}
    with torch.no_grad(), call.autocast():
        logits = calls.logits_of(call.module(*args, **kwargs), update.columns.vocabularies)
    scores = torch.log_softmax(logits.reshape(-1, logits.shape[-1]).float(), -1)[: len(ids) - 1]
    targets = torch.tensor(ids[1 : len(scores) + 1], device=scores.device)
    return scores.gather(-1, targets[:, None])[:, 0].tolist()


def _positions(call, row, starts):
    """Return whether the positions that a pass was given, or counts, "run on" behind a text or "begin anew"; None where nobody knows."""
    given = call.kwargs.get("position_ids")
    if given is None:
        named = inspect.signature(call.module.forward).parameters
        return "run on" if "position_ids" in named else None
    if not isinstance(given, torch.Tensor) or given.ndim != 2:
        return None
    positions = given[row["row"] if given.shape[0] > 1 else 0].tolist()
    steps = [positions[place] - positions[place - 1] for place in starts if place < len(positions)]
    return "run on" if min(steps, default=1) > 0 else "begin anew"
