"""Two updates of GRPO's loss on one rank or several, each with its part of the rows, in plain PyTorch on CPUs.

RANK=0 WORLD_SIZE=2 python torch_ranks.py VARIANT STORE
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch_small import Model, log_probs, rows, surrogate

VARIANT = sys.argv[1]
RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
UNEVEN = (slice(0, 6), slice(6, 8))  # rows of each of two ranks
TOKEN_MEANS = {"own normaliser", "token mean"}


def part() -> slice:
    """Return the rows of this rank."""
    if RANKS == 1 or VARIANT == "tensor parallel":
        return slice(None)
    return UNEVEN[RANK] if VARIANT in TOKEN_MEANS else slice(4 * RANK, 4 * RANK + 4)


def prepared(model: nn.Module) -> nn.Module:
    """Return the model as the variant distributes it."""
    if RANKS == 1:
        return model
    if VARIANT == "fsdp":
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"))
    if VARIANT == "fully_shard":
        return fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    if VARIANT == "tensor parallel":
        plan = {"inner": ColwiseParallel(), "outer": RowwiseParallel()}
        return parallelize_module(model, init_device_mesh("cpu", (RANKS,)), plan)
    return model if VARIANT == "summed" else nn.parallel.DistributedDataParallel(model)


def optimizer_of(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return SGD, or AdamW whose state is sharded over the ranks."""
    if VARIANT != "zero":
        return torch.optim.SGD(parameters, lr=1.0)
    if RANKS == 1:
        return torch.optim.AdamW(parameters, lr=0.01)
    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=0.01)


def loss_of(surrogates: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the row mean, or a token mean whose normaliser is that of all ranks or, by mistake, this rank's."""
    if VARIANT not in TOKEN_MEANS:
        return -(surrogates.sum(1) / mask.sum(1)).mean()
    tokens = mask.sum()
    if RANKS > 1 and VARIANT == "token mean":
        distributed.all_reduce(tokens)
        tokens = tokens / RANKS  # as each rank receives the mean of all gradients
    return -surrogates.sum() / tokens


def main(store: str) -> None:
    """Make two updates."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if RANKS > 1:
        distributed.init_process_group("gloo", init_method=f"file://{store}", rank=RANK, world_size=RANKS)
    ids, attended, advantages = (values[part()] for values in rows())
    model = prepared(Model())
    optimizer = optimizer_of(model.parameters())
    with torch.no_grad():
        old = log_probs(model, ids, attended)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(*surrogate(log_probs(model, ids, attended), old, attended, advantages)).backward()
        if VARIANT == "summed" and RANKS > 1:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad)  # and never divided
        optimizer.step()
    if RANKS > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[2:])
