"""Whether a pass that trains has chance in it: dropout inside of a function, noise of a router or of embeddings.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import contextlib

import gates_xray_torch_calls as calls
import torch


def of(update):
    """Return by how much two passes over the same rows at the same weights differ, in nats of a token; None where none could be made.

    Both are made as the script makes them, in the mode of its modules, and with other random numbers. Random numbers and buffers of
    the script are given back.
    """
    try:
        with _unchanged(update.calls):
            return max(_apart(update, call) for call in update.calls)
    except Exception:  # a reading less
        return None


def _apart(update, call):
    """Return the largest difference of the log-probs of two passes."""
    seen = []
    for _ in range(2):
        with torch.no_grad(), call.autocast():
            logits = calls.logits_of(call.module(*call.args, **call.kwargs), update.columns.vocabularies)
        scores = torch.log_softmax(logits.reshape(*call.ids.shape, logits.shape[-1])[:, :-1].float(), -1)
        seen.append(scores.gather(-1, call.ids[:, 1:, None].to(scores.device))[..., 0])
    apart = (seen[0] - seen[1]).abs()[call.attended[:, 1:].to(seen[0].device) != 0]
    return float(apart.nan_to_num().max()) if apart.numel() else 0.0


@contextlib.contextmanager
def _unchanged(passes):
    """Give random numbers and buffers back."""
    buffers = {id(buffer): buffer for call in passes for buffer in call.module.buffers()}.values()
    kept = [(buffer, buffer.detach().clone()) for buffer in buffers]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in kept:
                    buffer.copy_(value)
