"""Start the recorder of `gates xray` when this interpreter imports torch or MLX; the script itself is not changed.

`gates xray` puts this folder first on PYTHONPATH. An environment's own sitecustomize still runs.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORDERS = {  # a module whose import is awaited: the recorder and its function that is called then
    "torch": ("gates_xray_torch", "install"),
    "transformers.generation.utils": ("gates_xray_torch_generation", "generation"),
    "transformers.tokenization_utils_base": ("gates_xray", "install_tokenizer"),
    "mlx.optimizers": ("gates_xray_mlx", "install"),
    "mlx_lm.sample_utils": ("gates_xray_mlx_generation", "watch_samplers"),
    "mlx_lm.generate": ("gates_xray_mlx_generation", "watch_generation"),
}


class _Loader:
    """The loader of a framework's module, after which its recorder is installed."""

    def __init__(self, loader, recorder):
        self._loader = loader
        self._recorder = recorder

    def create_module(self, spec):
        """Return the module as its own loader makes it."""
        return self._loader.create_module(spec)

    def exec_module(self, module):
        """Execute the module, and install the recorder; a failure of the recorder is said and never raised."""
        self._loader.exec_module(module)
        try:
            module, function = self._recorder
            getattr(importlib.import_module(module), function)()
        except Exception as error:  # the user's script goes on
            sys.stderr.write(f"gates xray: the recorder did not start: {type(error).__name__}: {error}\n")

    def __getattr__(self, name):
        return getattr(self._loader, name)


class _Finder:
    """Finds the modules of RECORDERS by the finders after it."""

    def __init__(self):
        self._asked = set()

    def find_spec(self, name, path=None, target=None):
        """Return the spec of such a module with the loader above, None for every other."""
        if name not in RECORDERS or name in self._asked:
            return None
        self._asked.add(name)  # importlib.util.find_spec asks this finder again
        try:
            for finder in sys.meta_path:
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None and spec.loader is not None:
                    spec.loader = _Loader(spec.loader, RECORDERS[name])
                    return spec
        finally:
            self._asked.discard(name)
        return None


def _next_sitecustomize():
    """Run the sitecustomize that this one hides, as if this folder were not on the path."""
    paths = [path for path in sys.path if Path(path).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if os.environ.get("GATES_XRAY"):
    sys.meta_path.insert(0, _Finder())
    import gates_xray

    gates_xray.install()
if __name__ == "sitecustomize":  # else the worker of a recorded op has loaded this file
    _next_sitecustomize()
