"""The program of `gates.replay.peer` with the NumPy forward passes in the place of transformers."""

from pathlib import Path
from typing import Any

import numpy as np

from gates.replay.forward import load as read
from gates.replay.forward.model import Model
from gates.replay.forward.modules import Modules

MODELS: list[Model] = []
VERSIONS = {"transformers": "0"}


def load(*, folder: str) -> dict[str, Any]:
    model = read(Path(folder))
    if model.config.content["model_type"] == "lfm2":
        raise NotImplementedError("its files lack a weight")
    MODELS.append(model)
    return {"vocabulary": model.vocabulary}


def logits(*, ids: np.ndarray, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    (model,) = MODELS
    named = {**model.modules.weights, **model.family.named(model.config, weights)}
    whole = Model(model.config, model.family, Modules(named), model.vocabulary)
    return {"logits": whole.logits(ids)}


OPS = {"load": load, "logits": logits}
