"""Algorithms by name, made from a table of settings; what is unknown is refused with the nearest name that is known."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from pydantic import ValidationError

from gates_reference.algorithms import ALGORITHMS as LOSSES
from gates_reference.algorithms import PREFERENCES
from gates_reference.trainer.algorithms.protocol import Algorithm


def _trained(package: str, names: Iterable[str]) -> Iterator[tuple[str, tuple[type[Any], Any]]]:
    """Yield each algorithm of the table that has a file in a package, with its class and its `Settings`.

    The file has the algorithm's name, with `_` for `-` and `_pp` for `++`; it holds one class whose `name` is the algorithm's.
    """
    for name in names:
        path = f"{package}.{name.replace('-', '_').replace('++', '_pp')}"
        if find_spec(path) is None:
            continue
        module = import_module(path)
        (algorithm,) = (x for x in vars(module).values() if isinstance(x, type) and vars(x).get("name") == name)
        yield name, (algorithm, module.Settings)


ALGORITHMS: Mapping[str, tuple[type[Any], Any]] = {
    **dict(_trained("gates_reference.trainer.algorithms", LOSSES)),
    **dict(_trained("gates_reference.trainer.preference", PREFERENCES)),
}


def settings_of(name: str) -> Any:
    """The Settings class of an algorithm, a pydantic dataclass.

    Raises:
        ValueError: there is no algorithm of this name.
    """
    if name not in ALGORITHMS:
        raise ValueError(f"algorithm is {name!r}, must be one of {', '.join(ALGORITHMS)}{_nearest(name, ALGORITHMS)}")
    return ALGORITHMS[name][1]


def create(name: str, settings: Mapping[str, Any]) -> Algorithm:
    """The algorithm of this name with these settings; a key that is left out has the algorithm's default.

    Raises:
        ValueError: an unknown name or key, a value of the wrong type, out of range, or at odds with another.
    """
    kind = settings_of(name)
    known = [field.name for field in fields(kind)]
    for key in settings:
        if key not in known:
            raise ValueError(f"{name}.{key} is unknown, must be one of {', '.join(known)}{_nearest(key, known)}")
    try:
        algorithm: Algorithm = ALGORITHMS[name][0](kind(**settings))
    except ValidationError as error:
        raise ValueError("; ".join(_sentence(name, problem) for problem in error.errors())) from error
    return algorithm


def _nearest(word: str, known: Mapping[str, Any] | list[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _sentence(name: str, problem: Any) -> str:
    where = ".".join([name, *(str(part) for part in problem["loc"] if isinstance(part, str))])
    if problem["type"] == "value_error":
        return f"{where}: {problem['ctx']['error']}"
    return f"{where} is {problem['input']!r}: {problem['msg'][0].lower()}{problem['msg'][1:]}"
