"""Forward passes of language models in float64, written from their definitions in NumPy.

They share nothing with a trainer or with its framework: weights are read from safetensors files, and every sum is NumPy's. A gate
recomputes with them the log-probs and entropies of recorded completions.
"""

from gates.replay.forward.errors import UnsupportedError
from gates.replay.forward.files import read
from gates.replay.forward.model import Model, load
from gates.replay.forward.scores import log_probs

__all__ = ["Model", "UnsupportedError", "load", "log_probs", "read"]
