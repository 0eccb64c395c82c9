"""Load the user's own reward function from an import path or a file."""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates_reference.trainer.rewards.samples import Reward, Sample


def load(where: str) -> Callable[..., Any]:
    """Load the function "package.module:name" or "./file.py:name".

    Raises:
        ValueError: the form is wrong, or there is no such module, file or function; the message has the cause.
    """
    module_name, colon, name = where.rpartition(":")
    if not colon or not module_name or not name:
        raise ValueError(f"reward function {where!r} must be 'package.module:function' or './file.py:function'")
    try:
        module = _file(Path(module_name)) if module_name.endswith(".py") else importlib.import_module(module_name)
    except Exception as error:  # noqa: BLE001  importing somebody's code may raise anything
        file = Path(f"{module_name}.py")
        hint = f"; for the file here write './{file}:{name}'" if file.is_file() else ""
        raise ValueError(
            f"reward function {where!r} cannot be imported: {type(error).__name__}: {error}{hint}"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"reward function {where!r}: {module_name} has no function {name!r}")  # noqa: TRY004  every mistake of a name is one kind of error
    return function


def _file(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    name = f"gates_reward_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a module up by its name
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, slots=True)
class Own:
    """A function that is called like TRL's: keywords `prompts`, `completions`, and a list for every column of the data.

    Only the keywords in `accepted` are passed (all if it is None). `needed` are the columns that have no default.
    """

    function: Callable[..., Any]
    accepted: frozenset[str] | None
    needed: frozenset[str]

    def __call__(self, samples: Sequence[Sample]) -> Sequence[float | None]:
        """Return what the function gives for the samples."""
        columns = {str(key) for sample in samples for key in sample.row}
        values: dict[str, list[Any]] = {key: [sample.row.get(key) for sample in samples] for key in sorted(columns)}
        values |= {"prompts": [s.prompt for s in samples], "completions": [s.completion for s in samples]}
        if self.accepted is not None:
            values = {key: value for key, value in values.items() if key in self.accepted}
        rewards: Sequence[float | None] = self.function(**values)
        return rewards


def reward(where: str) -> Reward:
    """Load a function and find out which keywords it takes.

    Raises:
        ValueError: it cannot be loaded (`load`), or does not take `completions`.
    """
    function = load(where)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some functions written in C have none: they get everything
        return Own(function, None, frozenset())
    named = {p.name: p for p in parameters if p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}}
    if any(p.kind == p.VAR_KEYWORD for p in parameters):
        accepted = None
    elif "completions" not in named:
        raise ValueError(
            f"reward function {where!r} takes {', '.join(named) or 'no keyword'}; it must take `completions`, as in "
            "def reward(completions, **columns)"
        )
    else:
        accepted = frozenset(named)
    needed = {name for name, p in named.items() if p.default is p.empty} - {"prompts", "completions"}
    return Own(function, accepted, frozenset(needed))
