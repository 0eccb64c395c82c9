"""Sketches of gradients in PyTorch.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

CHUNK_BYTES = 256 << 20  # of gradients that are held at once


class Sketch:
    """Gradients in some parameters, each number of which goes with a random sign into one of the bins."""

    def __init__(self, parameters, bins):
        self.parameters = list(parameters)
        self.bins = bins
        self._batched = None  # whether batched backward passes work, once it is known

    def of(self, values):
        """Return the sketched gradients (n, bins) of n numbers."""
        size = sum(parameter.numel() for parameter in self.parameters) * 4
        at_once = max(1, min(len(values), CHUNK_BYTES // size))
        parts = []
        for start in range(0, len(values), at_once):
            chunk = values[start : start + at_once]
            parts.append(self.sketched(self._gradients(chunk, keep=start + at_once < len(values))))
        return np.concatenate(parts)

    def _gradients(self, values, keep):
        """Return the gradients (n, …) of n numbers in each parameter."""
        one_hot = torch.eye(len(values), device=values.device, dtype=values.dtype)
        if len(values) > 1 and self._batched is not False:
            try:  # the graph stays at the first try, since an operation may have no batched backward pass
                gradients = torch.autograd.grad(
                    values,
                    self.parameters,
                    one_hot,
                    retain_graph=keep or not self._batched,
                    allow_unused=True,
                    is_grads_batched=True,
                )
            except RuntimeError:
                self._batched = False
            else:
                self._batched = True
                return gradients
        each = [
            torch.autograd.grad(values, self.parameters, row, retain_graph=True, allow_unused=True) for row in one_hot
        ]
        return [
            None
            if all(gradient is None for gradient in column)
            else torch.stack([torch.zeros_like(parameter) if gradient is None else gradient for gradient in column])
            for column, parameter in zip(zip(*each, strict=True), self.parameters, strict=True)
        ]

    def sketched(self, gradients):
        """Return the sketch (n, bins) of gradients (n, …), or of one gradient."""
        rows = None
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            if gradient is None:
                continue
            dense = gradient.detach().to_dense() if gradient.is_sparse else gradient.detach()
            flat = dense.reshape(-1, parameter.numel())
            wide = torch.float64 if flat.device.type != "mps" else torch.float32
            if rows is None:
                rows = torch.zeros(len(flat), self.bins, dtype=wide, device=flat.device)
            where, sign = _hashes(index, parameter.numel(), self.bins, flat.device, wide)
            rows.index_add_(1, where, flat.to(wide) * sign)
        return np.zeros((1, self.bins)) if rows is None else rows.cpu().double().numpy()


@functools.lru_cache(maxsize=256)
def _hashes(index, size, bins, device, dtype):
    """Return the bin and the sign of each number of a parameter, by its index among the fitted parameters."""
    generator = torch.Generator().manual_seed(1_000_003 * index + 17)
    where = torch.randint(1 << 30, (size,), generator=generator) % bins
    sign = (torch.randint(2, (size,), generator=generator) * 2 - 1).to(dtype)
    return where.to(device), sign.to(device)
