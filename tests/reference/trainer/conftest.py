"""One model cache for the whole run and all its processes, outside the user's own."""

import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from gates_reference.trainer import model as models


@pytest.fixture(scope="session", autouse=True)
def models_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Point the cache of built models at a folder of this run; what one process has built, the others find."""
    before = os.environ.get("GATES_CACHE_DIR")
    base = tmp_path_factory.getbasetemp()  # of one worker of pytest-xdist; beside it are the others'
    folder = str((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "cache")
    os.environ["GATES_CACHE_DIR"] = folder
    yield folder
    if before is None:
        del os.environ["GATES_CACHE_DIR"]
    else:
        os.environ["GATES_CACHE_DIR"] = before


@pytest.fixture(scope="session")
def exact_logits() -> Callable[[Path, list[int]], np.ndarray]:
    """The float64 NumPy forward of Qwen3: (model folder, L token ids) -> (L, V)."""
    return runpy.run_path(str(Path(__file__).with_name("qwen3_numpy.py")))["logits"]


@pytest.fixture
def untouched() -> Iterator[None]:
    """Leave no adapter on a model that another test may load."""
    yield
    models.forget()
