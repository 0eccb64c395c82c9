"""Placeholders for packages that a CPU cannot have."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHIM = Path(__file__).resolve().parents[4] / "gates" / "subjects" / "peers" / "shared" / "peer_shim.py"
ABSENT = ("surely_absent", "surely_absent.inner")


@pytest.fixture
def shim() -> Iterator[Any]:
    """Return the module, and forget its placeholders afterwards."""
    spec = importlib.util.spec_from_file_location("peer_shim", SHIM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in ABSENT:
        sys.modules.pop(name, None)


def test_versions_name_the_placeholders(shim: Any) -> None:
    """A package is named once, however many of its modules are stood for."""
    assert shim.stand_in(*ABSENT) == {"surely_absent": "absent, a placeholder"}


def test_names_of_a_placeholder_are_empty_classes(shim: Any) -> None:
    shim.stand_in(*ABSENT)
    inner = importlib.import_module("surely_absent.inner")
    assert isinstance(inner.Thing, type)
    assert importlib.util.find_spec("surely_absent") is not None
    with pytest.raises(AttributeError):
        _ = inner.__file__


def test_a_module_that_is_not_named_stays_absent(shim: Any) -> None:
    """A library that looks for an optional module must not find one."""
    shim.stand_in(*ABSENT)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("surely_absent.other")


def test_nothing_stands_for_an_installed_package(shim: Any) -> None:
    with pytest.raises(RuntimeError, match=r"pytest .* is installed"):
        shim.stand_in("pytest")


def test_a_package_without_its_init_has_its_own_modules(
    shim: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its `__init__` does not run; a module is the installed one; other names are empty classes."""
    (tmp_path / "surely_absent").mkdir()
    (tmp_path / "surely_absent" / "__init__.py").write_text("raise OSError('a server started')\n")
    (tmp_path / "surely_absent" / "inner.py").write_text("VALUE = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    shim.without_init("surely_absent")
    assert importlib.import_module("surely_absent.inner").VALUE == 3
    assert isinstance(sys.modules["surely_absent"].Thing, type)
    with pytest.raises(RuntimeError, match="imported already"):
        shim.without_init("surely_absent")
