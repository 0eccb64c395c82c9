"""Forward passes of PyTorch models: what they were given, and where their logits are.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import contextlib
import gc
import os

import torch

DROPPED = ("logits_to_keep", "num_logits_to_keep", "labels", "past_key_values", "num_items_in_batch", "return_loss")


class Call:
    """A forward pass that gave logits: its module, what it was given, and the tokens.

    Attributes:
        module: the innermost module that takes token ids and gives logits.
        ids: (B, T), on the CPU.
        attended: (B, T), 1 where the attention mask is, or everywhere.
    """

    def __init__(self, module, args, kwargs, ids):
        self.module = module
        self.args = tuple(_held(value) for value in args)
        self.kwargs = {name: _held(value) for name, value in kwargs.items() if name not in DROPPED}
        if "use_cache" in self.kwargs:
            self.kwargs["use_cache"] = False
        self.labels = _held(kwargs.get("labels"))
        self.ids = ids.detach().cpu().reshape(-1, ids.shape[-1])
        self.flat = ids.ndim == 1
        mask = kwargs.get("attention_mask")
        usable = isinstance(mask, torch.Tensor) and mask.shape == ids.shape
        self.attended = (mask.detach().cpu() != 0).long() if usable else torch.ones_like(self.ids)
        self.last = last_targets(self.ids, (*args, *kwargs.values()))
        self.autocast = _autocast(ids.device.type)

    def tokens(self, row):
        """Return the tokens of a row and whether each is attended; its last target too, where the model was not given that."""
        ids, attended = self.ids[row].tolist(), self.attended[row].tolist()
        if self.last is None or int(self.last[row]) < 0:
            return ids, attended
        return [*ids, int(self.last[row])], [*attended, attended[-1]]

    def shown(self):
        """Return the attended tokens of each row."""
        return [ids[counts != 0].tolist() for ids, counts in zip(self.ids, self.attended, strict=True)]

    def row(self, index):
        """Return the arguments for one row."""
        rows = self.ids.shape[0]

        def cut(value):
            sliced = isinstance(value, torch.Tensor) and not self.flat and value.ndim and value.shape[0] == rows
            return value[index : index + 1] if sliced else value

        return tuple(map(cut, self.args)), {name: cut(value) for name, value in self.kwargs.items()}


def _held(value):
    return value.detach() if isinstance(value, torch.Tensor) else value


def token_ids(args, kwargs):
    """Return the token ids that a module was given: whole numbers, (B, T) or (T,)."""
    for value in (kwargs.get("input_ids"), *args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            whole = value.dtype in {torch.int64, torch.int32} and value.ndim in {1, 2}
            return value if whole else None
    return None


def _tensors(output):
    """Yield what may be logits: an attribute or item of that name, the output itself, or its first tensors."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, dict):
        yield output.get("logits")
    elif isinstance(output, (tuple, list)):
        yield from output[:2]
    else:
        yield getattr(output, "logits", None)


def logits_of(output, vocabularies):
    """Return the logits of a module's output, or None: those that are named so, or scores over a vocabulary that is embedded."""
    named = isinstance(output, dict) or not isinstance(output, (torch.Tensor, tuple, list))
    for value in _tensors(output):
        scores = isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim in {2, 3}
        if scores and (named or value.shape[-1] in vocabularies):
            return value
    return None


def hidden_of(output):
    """Return the hidden states of a model without its head, or None."""
    value = getattr(output, "last_hidden_state", None)
    return output if value is None and isinstance(output, torch.Tensor) and output.is_floating_point() else value


def holders(part):
    """Return the modules that hold a module, the smallest first."""
    modules = (item for item in gc.get_objects() if issubclass(type(item), torch.nn.Module))
    found = [module for module in modules if module is not part and any(inner is part for inner in module.modules())]
    return sorted(found, key=lambda module: sum(1 for _ in module.modules()))


def last_targets(ids, candidates):
    """Return the token after the last of each row, where `candidates` hold the same tokens one position earlier.

    Many scripts give a model all tokens but the last, and score the tokens from the second on. None where no candidate does.
    """
    rows, length = ids.shape
    for value in candidates:
        if (
            not isinstance(value, torch.Tensor)
            or value.is_floating_point()
            or value.numel() != ids.numel()
            or length < 2
        ):
            continue
        shifted = value.detach().cpu().reshape(rows, length)
        counted = shifted[:, :-1] >= 0
        same = (shifted[:, :-1] == ids[:, 1:]) & counted
        if counted.any() and int(same.sum()) > 0.9 * int(counted.sum()) and not torch.equal(shifted, ids):
            return shifted[:, -1]
    return None


def dropout(modules):
    """Return the largest share that modules drop: as layers, or inside of an attention or a recurrent layer."""
    shares = [0.0]
    for part in modules:
        if part.training:
            names = (
                ("p",) if isinstance(part, torch.nn.modules.dropout._DropoutNd) else ("attention_dropout", "dropout")
            )
            shares += [share for name in names if isinstance(share := getattr(part, name, None), float)]
    return max(shares)


def in_backward():
    """Return whether this is a backward pass, in which checkpoints compute a forward pass again."""
    return torch._C._current_graph_task_id() != -1


def sharded(parameter):
    """Return whether a process holds only a part of a parameter."""
    marks = (
        "device_mesh",
        "ds_id",
        "_fsdp_flattened",
    )  # of DTensor, DeepSpeed, and FSDP that keeps the original parameters
    return any(hasattr(parameter, mark) for mark in marks) or type(parameter).__name__ == "FlatParameter"


def ranks():
    """Return the rank of this process, and how many there are."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _autocast(device):
    """Return a context that repeats the automatic casts of this moment."""
    try:
        enabled = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device)
    except TypeError:  # torch before 2.4
        enabled, dtype = torch.is_autocast_enabled(), torch.get_autocast_gpu_dtype()

    def context():
        return torch.autocast(device, dtype) if enabled else contextlib.nullcontext()

    context.named = str(dtype).removeprefix("torch.") if enabled else None
    return context


@contextlib.contextmanager
def quiet(calls):
    """Let the modules compute without dropout, checkpoints or a change of random numbers, and give back what they had."""
    parts = {id(part): part for call in calls for part in call.module.modules()}.values()
    training = [part for part in parts if part.training]
    checkpointing = [part for part in parts if getattr(part, "gradient_checkpointing", False) is True]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=devices), torch.enable_grad():
        try:
            for part in training:
                part.training = False
            for part in checkpointing:
                part.gradient_checkpointing = False
            yield
        finally:
            for part in training:
                part.training = True
            for part in checkpointing:
                part.gradient_checkpointing = True
