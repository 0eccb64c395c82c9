"""Record the updates of a PyTorch script: which log-probs its gradient is made of.

docs/xray.md says what is measured and has the format. The script's model is used in place, at the weights before the update, in
evaluation mode and without its state of random numbers; what it had is given back.

It runs in the interpreter of the script: standard library, NumPy and torch only.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys

import gates_xray
import torch
from gates_xray_torch_between import listed
from gates_xray_torch_recorder import Recorder

_recorder = None
_handles = []  # of the hooks of forward passes
_stances = []  # what torch.compile does after the last update, where it was switched off


def install():
    """Watch this process: forward passes, optimizer steps and clipping."""
    global _recorder
    if _recorder is not None:
        return
    recording = gates_xray.recording()
    _recorder = Recorder(recording, _leave)
    from torch.nn.modules import module
    from torch.optim import optimizer

    _handles.append(module.register_module_forward_pre_hook(_recorder.before_forward))
    after = module.register_module_forward_hook(_recorder.after_forward, with_kwargs=True, always_call=True)
    _handles.append(after)
    optimizer.register_optimizer_step_pre_hook(_recorder.before_step)
    optimizer.register_optimizer_step_post_hook(_recorder.after_step)
    _watch_clipping()
    _watch_indices()
    _watch_draws()
    _watch_hooks()
    _watch_compilation()
    atexit.register(_recorder.end)
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    recording.event(
        "start", framework=f"torch {torch.__version__}", python=sys.version.split()[0], rank=rank, world_size=ranks
    )


def _leave():
    """Let the script run as it would without the recorder, once the last update has been recorded."""
    while _handles:
        _handles.pop().remove()
    if _stances:
        torch.compiler.set_stance(_stances.pop())


def recorder():
    """Return the recorder of this process."""
    install()
    return _recorder


def _watch_clipping():
    from torch.nn import utils

    original = utils.clip_grad_norm_

    @functools.wraps(original)
    def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
        parameters = listed(parameters)
        norm = original(parameters, max_norm, *args, **kwargs)
        known = _recorder.between.clipped(parameters, norm, max_norm, _recorder.calls)
        _recorder.recording.event("clip", update=_recorder.recording.made, **known)
        return norm

    utils.clip_grad_norm_ = utils.clip_grad.clip_grad_norm_ = clip_grad_norm_


def _watch_compilation():
    """Let compiled functions run uncompiled until the updates are recorded: what they compute inside is hidden from hooks."""
    original = torch.compile

    @functools.wraps(original)
    def compile_(*args, **kwargs):
        if _recorder.recording.wanted and not _stances and hasattr(torch.compiler, "set_stance"):  # from torch 2.6 on
            torch.compiler.set_stance("force_eager")
            _stances.append("default")
        return original(*args, **kwargs)

    torch.compile = compile_


def _watch_hooks():
    """See whether a script asks to be called for each gradient inside of the backward pass, as optimizers that step there do."""
    original = torch.Tensor.register_post_accumulate_grad_hook

    @functools.wraps(original)
    def register_post_accumulate_grad_hook(self, hook):
        _recorder.hooked = True
        return original(self, hook)

    torch.Tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook


def _watch_indices():
    """Keep the whole numbers by which scores are picked: the targets of a loss, where the model was not given them."""

    def watching(original, position, name):
        @functools.wraps(original)
        def function(*args, **kwargs):
            if not _recorder.busy and _recorder.recording.wanted and torch.is_grad_enabled():
                index = kwargs.get(name, args[position] if len(args) > position else None)
                if isinstance(index, torch.Tensor) and index.dtype == torch.int64:
                    _recorder.indices.append(index)
            return original(*args, **kwargs)

        return function

    functional = torch.nn.functional
    functional.cross_entropy = watching(functional.cross_entropy, 1, "target")
    functional.nll_loss = watching(functional.nll_loss, 1, "target")
    torch.gather = watching(torch.gather, 2, "index")
    torch.Tensor.gather = watching(torch.Tensor.gather, 2, "index")


def _watch_draws():
    """See the tokens that a script's own loop draws; torch's distribution of categories draws by the same function."""

    def watching(original):
        @functools.wraps(original)
        def multinomial(*args, **kwargs):
            drawn = original(*args, **kwargs)
            with contextlib.suppress(Exception):
                _recorder.drew(args[0] if args else kwargs["input"], drawn)
            return drawn

        return multinomial

    torch.multinomial = watching(torch.multinomial)
    torch.Tensor.multinomial = watching(torch.Tensor.multinomial)
