"""One's own reward function, by import path or file."""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reference.trainer.rewards.samples import Reward, Sample


def load(where: str) -> Callable[..., Any]:
    """The function "package.module:name" or "./file.py:name".

    Raises:
        ValueError: the form is wrong, or there is no such module, file or function; the cause is in the message.
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


def reward(where: str) -> Reward:
    """One's function called as TRL calls it: keywords `prompts`, `completions` and a list for every column of the data."""
    function = load(where)

    def score(samples: Sequence[Sample]) -> Sequence[float | None]:
        columns = {str(key) for sample in samples for key in sample.row} - {"prompts", "completions"}
        values = {key: [sample.row.get(key) for sample in samples] for key in sorted(columns)}
        prompts, completions = [s.prompt for s in samples], [s.completion for s in samples]
        return function(prompts=prompts, completions=completions, **values)

    return score
