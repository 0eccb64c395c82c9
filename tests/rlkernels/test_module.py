"""The built module: what it reports about itself, and that its stub matches it."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import os
from pathlib import Path

import rlkernels

ROOT = Path(__file__).parents[2]
PACKAGE = Path(rlkernels.__file__).parent


def stub_functions() -> dict[str, ast.FunctionDef]:
    """The functions of the stub; of overloads the last, which is the widest."""
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def parameters(function: ast.FunctionDef) -> list[tuple[str, str, object]]:
    """(name, kind, default) of every parameter in the stub."""
    arguments = function.args
    plain = [(a.arg, "POSITIONAL_OR_KEYWORD", inspect.Parameter.empty) for a in arguments.args]
    assert not arguments.defaults
    keywords: list[tuple[str, str, object]] = []
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
        keywords.append((argument.arg, "KEYWORD_ONLY", value))
    return [*plain, *keywords]


def test_the_stub_names_what_the_module_has() -> None:
    """Neither a function without a stub nor a stub without a function; classes have stubs too."""
    assert sorted([*stub_functions(), "PolicyLoss", "__version__"]) == sorted(rlkernels.__all__)


def test_signatures_and_defaults_are_those_of_the_stub() -> None:
    """Names, kinds and defaults of every parameter agree."""
    for name, function in stub_functions().items():
        signature = inspect.signature(getattr(rlkernels, name))
        built = [(p.name, p.kind.name, p.default) for p in signature.parameters.values()]
        assert built == parameters(function), name


def test_help_shows_what_the_stub_says() -> None:
    """A person who asks `help(rlkernels.token_kl)` gets formulas, shapes and errors."""
    assert inspect.getdoc(rlkernels) == ast.get_docstring(ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8")))
    for name, function in stub_functions().items():
        want = ast.get_docstring(function)
        assert want
        assert inspect.getdoc(getattr(rlkernels, name)) == want, name


def test_the_installed_stub_is_the_one_in_the_checkout() -> None:
    """A stale build would be judged by a stub that is not its own."""
    source = ROOT / "rust" / "rlkernels-python" / "rlkernels.pyi"
    assert (PACKAGE / "__init__.pyi").read_bytes() == source.read_bytes()
    assert (PACKAGE / "py.typed").exists()


def test_build_info() -> None:
    """A release build of the installed version, for this machine."""
    info = rlkernels.build_info()
    assert (info["version"], info["profile"]) == (importlib.metadata.version("rl-gates"), "release")
    assert 1 <= info["threads"] <= 1024
    assert 1 <= info["cpus"] <= (os.cpu_count() or 1)
    assert os.uname().machine.replace("arm64", "aarch64") in info["target"]
    assert {"sse2", "neon"} & set(info["features"])
    assert info["rustc"].startswith("rustc ")
