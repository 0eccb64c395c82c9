"""The file that `gates init` writes: a subject whose ops are explained and raise NotImplementedError."""

from __future__ import annotations

import keyword
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gates.model import ConfigurationError, Op, Wire
from gates.provided import NEUTRAL
from gates.report import scaffold_frameworks as frameworks
from gates.report.conventions import explained
from gates.report.ops import output_words
from gates.report.scaffold_frameworks import Framework

WIDTH = 120  # columns of a line
FIRST = ("group_advantages", "token_kl", "importance_ratio", "selective_log_softmax", "policy_loss")
HEAD = '''"""{name} as a subject of Gates.

    gates check --subject ./{file}

Gates loads this file in a process of its own, in this interpreter or in the one that `--python` names. Nothing of Gates
is needed there: only {needs} and your library. Fill in what your library has, by calling it; repair nothing
here, or the repair is judged. Delete the arguments with a default that your code does not have: a case that needs one
is `unsupported` then, as is what raises NotImplementedError; neither is ever a pass. `gates ops` lists every op.
"""

from __future__ import annotations

{standard}from typing import Any

import numpy as np
{imports}
# import {name}  # as installed: the folder of this file is not on the path

VERSIONS: dict[str, str] = {{"numpy": np.__version__{versions}}}  # shown in results; add your library's
# By a gate's name (`gates explain GATE` ends with it) where your documentation says that yours differs, such as
# "policy_loss[grpo]": "README, section Loss". A failure there is shown as `departs`; it still fails the run.
DEPARTURES_DOCUMENTED: dict[str, str] = {{}}
OPS: dict[str, Any] = {{}}
CONVENTIONS: dict[str, dict[str, tuple[Any, ...]]] = {{}}


def provides(op: str, **conventions: tuple[Any, ...]) -> Any:
    """Declare that a function is an op, with the choices that it has: a case that needs another one is `unsupported`.

    A convention that is not named is asked in every choice, but those that are asked only of a subject that declares
    them: their lines say so. For one call, `raise NotImplementedError("why")` says `unsupported` too.
    """

    def register(function: Any) -> Any:
        if op in OPS:
            raise ValueError(f"{{op}} is provided twice")
        OPS[op], CONVENTIONS[op] = function, conventions
        return function

    return register
'''
FUNCTION = '''

@provides(
    "{op}",
{choices}
)
def {op}({signature}):
{formula}

{inputs}

{outputs}
    """
    raise NotImplementedError("{op} is not filled in yet")
{returned}
'''
TAIL = """

# More ops; `gates init {name} --op NAME --folder DIR` writes the function, `gates ops NAME` says what it is given:
# {others}
"""


def scaffold(
    name: str,
    file: str,
    ops: Mapping[str, Op],
    conventions: Mapping[str, Mapping[str, Any]],
    framework: Framework | None = None,
) -> str:
    """Return the text of a subject file with a function for each chosen op (those that `conventions` names).

    With a framework a loss is filled in by its forward alone.
    """
    chosen = [ops[op] for op in conventions]
    others = [op for op in ops if op not in conventions]
    imports = f"{frameworks.IMPORTS[framework]}\n" if framework else ""
    versions = f", {frameworks.VERSIONS[framework]}" if framework else ""
    needs = f"NumPy, {framework}" if framework else "NumPy"
    helped = framework is not None and any(frameworks.differentiated(op) for op in chosen)
    standard = "import functools\n" if helped else ""
    head = {"name": name, "file": file, "standard": standard, "imports": imports, "versions": versions, "needs": needs}
    parts = [HEAD.format(**head)]
    if framework is not None and helped:
        parts.append(frameworks.HELPERS[framework])
    parts += [_function(op, conventions[op.name], framework) for op in chosen]
    if others:
        listed = textwrap.fill(", ".join(others), 116, subsequent_indent="# ", break_on_hyphens=False)
        parts.append(TAIL.format(name=name, others=listed))
    return "".join(parts)


def _function(op: Op, conventions: Mapping[str, Any], framework: Framework | None) -> str:
    choices = [line for key, values in conventions.items() for line in _convention(key, op, tuple(values))]
    names = [name for name in op.inputs if name.isidentifier() and not keyword.iskeyword(name)]
    arguments = sorted((_argument(name, op) for name in names), key=lambda argument: "=" in argument)
    variable = frameworks.differentiated(op)
    if framework is not None and variable:
        others = [argument for argument in arguments if argument != variable]
        return frameworks.FUNCTION.format(
            op=op.name,
            variable=variable,
            arrays=frameworks.ARRAYS[framework],
            signature=_signature(f"{op.name}_of_arrays", [variable, "*", *others]),
            formula=_formula(op),
            inputs="\n".join(_item(name, words) for name, words in op.inputs.items()),
            choices="\n".join(choices) if choices else "    # every case",
        )
    return FUNCTION.format(
        op=op.name,
        choices="\n".join(choices) if choices else "    # every case",
        signature=_signature(op.name, ["*", *arguments]) if len(arguments) == len(op.inputs) else "**inputs",
        formula=_formula(op),
        inputs="\n".join(_item(name, words) for name, words in op.inputs.items()),
        outputs="\n".join(_item(f"returns {name}", output_words(output)) for name, output in op.outputs.items()),
        returned=_returned(op),
    )


def _argument(name: str, op: Op) -> str:
    """Return an argument, with its neutral value if a function may lack it."""
    return f"{name}={NEUTRAL.get(name)!r}" if name in op.optional or name in NEUTRAL else name


def _formula(op: Op) -> str:
    first = f'"""{_plain(op.formula or op.source)}.'
    return textwrap.fill(first, WIDTH, initial_indent="    ", subsequent_indent="    ")


def _convention(name: str, op: Op, choices: tuple[Wire, ...]) -> list[str]:
    """Return the choices that cases request, and below them one line about the convention with an example."""
    words = textwrap.wrap(explained(name, op, choices), WIDTH - 12, break_long_words=False, break_on_hyphens=False)
    declared = textwrap.wrap(f"{name}={choices!r},", WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return [*(f"    # {line}" for line in declared), *(f"    #     {line}" for line in words)]


def _signature(op: str, arguments: list[str]) -> str:
    """Return the arguments on one line, or a line for each where that is too long, as a formatter would."""
    line = ", ".join(arguments)
    if len(f"def {op}({line}):") <= WIDTH:
        return line
    return "".join(f"\n    {name}," for name in arguments) + "\n"


def _returned(op: Op) -> str:
    outputs = ", ".join(f'"{name}": …' for name in op.outputs)
    return textwrap.fill(f"return {{{outputs}}}", WIDTH, initial_indent="    # ", subsequent_indent="    #     ")


def _item(name: str, words: str) -> str:
    return textwrap.fill(f"{name}: {_plain(words)}", 116, initial_indent="    ", subsequent_indent="        ")


def _plain(words: str) -> str:
    return words.replace("\\", "/").replace('"""', "'''").rstrip(".")


def path_for(name: str, folder: Path) -> Path:
    """Return where a subject's file goes.

    Raises:
        ConfigurationError: the name is no name of a module, or the file is there already.
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigurationError(f"{name!r} cannot be the name of a subject; take letters, digits and _, such as mylib")
    path = folder / f"{name}_gates.py"
    if path.exists() or path.is_symlink():
        raise ConfigurationError(
            f"{path} exists and is not overwritten; name another folder with --folder, and copy from there what you want"
        )
    return path
