"""Shared by adapters of libraries that import packages which a CPU cannot have: placeholders, which every record names.

It is copied next to an adapter, since Gates is not installed in a peer's environment. It has no formula of any op. What an
adapter lets stand in is in its VERSIONS, and so in the header of every run and record; NAME.toml has it as a setting.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType
from typing import Any

__all__ = ["PLACEHOLDER", "Placeholder", "stand_in", "without_init"]
PLACEHOLDER = "absent, a placeholder"


class Placeholder(ModuleType):
    """An empty module, whose public names are empty classes; a submodule that is not a placeholder too cannot be imported."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = ModuleSpec(
            name, None, is_package=True
        )  # find_spec, by which libraries look for it, asks for one

    def __getattr__(self, name: str) -> Any:
        """Return an empty class of this name.

        Raises:
            AttributeError: the name is special, such as `__file__`.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stand_in(*modules: str) -> dict[str, str]:
    """Let placeholders stand for modules of packages that are not installed; return what VERSIONS says of the packages.

    Raises:
        RuntimeError: a package is installed, so that nothing may stand for it.
    """
    packages = dict.fromkeys(module.partition(".")[0] for module in modules)
    for package in packages:
        try:
            found = version(package)
        except PackageNotFoundError:
            continue
        raise RuntimeError(f"{package} {found} is installed, nothing may stand for it")
    for module in modules:
        sys.modules[module] = Placeholder(module)
        parent, _, name = module.rpartition(".")
        if parent:
            setattr(sys.modules[parent], name, sys.modules[module])
    return dict.fromkeys(packages, PLACEHOLDER)


def without_init(*packages: str) -> None:
    """Import packages without their `__init__`: their modules are the installed ones, other names are empty classes.

    Raises:
        RuntimeError: one of them has been imported before.
    """
    for package in packages:
        if package in sys.modules:
            raise RuntimeError(f"{package} has been imported already")
        spec = find_spec(package)
        assert spec is not None
        sys.modules[package] = module = Placeholder(package)
        module.__path__ = list(spec.submodule_search_locations or ())
