"""Print which cases of definitions each subject would be asked, from what its file declares, as JSON.

    python tests/gates/families/declarations.py FILE…

Libraries that are not installed are replaced by empty ones: a file's declarations do not depend on them.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

from gates.model import Subject, UnsupportedError
from gates.provided import Provided
from gates.registry import REGISTRY, load
from gates.run.choices import chosen
from gates.run.judge import lacking
from gates.run.plan import PlannedCase
from gates.worker.process import Hello

ROOT = Path(__file__).parents[3]
LIBRARIES = frozenset(
    [
        "accelerate",
        "areal",
        "datasets",
        "jax",
        "liger_kernel",
        "peft",
        "mlx_lm_lora",
        "mlx_tune",
        "mlxrl",
        "omegaconf",
        "openrlhf",
        "ray",
        "rlox",
        "skyrl",
        "swift",
        "tensordict",
        "torch",
        "torchtune",
        "unsloth",
        "unsloth_zoo",
        "transformers",
        "trl",
        "verl",
    ]
)


class Anything(MagicMock):
    """Has every attribute, and may be a base class."""

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        """Return no base."""
        return ()


class Empty(MetaPathFinder, Loader):
    """Provides a module that has every attribute, for the libraries of `LIBRARIES`."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a specification for a library, or one of its modules."""
        return ModuleSpec(fullname, self, is_package=True) if fullname.split(".", maxsplit=1)[0] in LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module."""
        module = Anything(name=spec.name, __path__=["nowhere"], __spec__=spec, __version__="0")
        module.__name__ = spec.name
        return module  # type: ignore[return-value]

    def exec_module(self, module: ModuleType) -> None:
        """Run nothing."""


def version(name: str) -> str:
    """Return a version of any package but those that placeholders of `peer_shim` stand for.

    Raises:
        PackageNotFoundError: it is one of them.
    """
    if name.replace("-", "_") in {"deepspeed", "flash_attn", "vllm"}:
        raise importlib.metadata.PackageNotFoundError(name)
    return "0"


def declared(path: Path) -> dict[str, Mapping[str, tuple[Any, ...]]]:
    """Return the conventions of each op that a file provides."""
    spec = importlib.util.spec_from_file_location(f"declared_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return {op: module.CONVENTIONS.get(op, {}) if hasattr(module, "CONVENTIONS") else {} for op in module.OPS}


def asked(ops: Mapping[str, Mapping[str, tuple[Any, ...]]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield op, case and its conventions for each case of a definition that a subject with these ops is asked."""
    load()
    subject = Subject("declared", Path("declared.py"), "declared")
    hello = Hello({op: Provided(op, conventions) for op, conventions in ops.items()}, {}, {})
    for gate in REGISTRY.gates.values():
        for case in gate.cases if gate.main.name in ops else ():
            if (case.level or gate.level) not in {"definition", "law", "rule"}:
                continue
            try:
                planned = chosen(PlannedCase(gate, subject, case), hello)
            except UnsupportedError:
                continue
            if not lacking(planned, hello):
                yield gate.main.name, f"{gate.id}/{case.name}", dict(planned.case.conventions)


def main() -> None:
    """Print the declarations and cases of each file."""
    sys.meta_path.insert(0, Empty())
    sys.path.insert(0, str(ROOT / "gates" / "subjects" / "peers" / "shared"))
    importlib.metadata.version = version
    result = {}
    for path in map(Path, sys.argv[1:]):
        ops = declared(path)
        cases: dict[str, list[Any]] = {op: [] for op in ops}
        for op, case, conventions in asked(ops):
            cases[op].append({"case": case, "conventions": conventions})
        result[path.name] = {"declared": ops, "cases": cases}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()
