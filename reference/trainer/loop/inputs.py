"""What a run reads besides its model: rows of data and reward functions, checked against each other before a model loads."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference.trainer.adapters import files
from reference.trainer.config.errors import ConfigurationError
from reference.trainer.config.read import Config
from reference.trainer.data import prompts, rows
from reference.trainer.rewards import combine, numbers, user


@dataclass(frozen=True, slots=True)
class Inputs:
    """The rows as they are stored, and the reward functions."""

    rows: list[rows.Row]
    functions: list[combine.Function]

    def digest(self) -> str:
        """The sha256 of the rows; what JSON cannot hold counts as the text that Python shows of it."""
        hasher = hashlib.sha256()
        for row in self.rows:
            hasher.update(json.dumps(dict(row), sort_keys=True, default=repr).encode() + b"\n")
        return hasher.hexdigest()


def read(config: Config) -> Inputs:
    """Read and check what a configuration names, but the model.

    Raises:
        DataError: the data is missing or wrong, or has not the columns that are asked for.
        ConfigurationError: a reward function cannot be made, needs a column that is not there, or `model.adapter_path` is empty.
    """
    path = config.model.adapter_path
    if path is not None and not (Path(path) / files.WEIGHTS).is_file():
        raise ConfigurationError(f"model.adapter_path: {path} has no {files.WEIGHTS}, so it holds no adapters")
    data = config.data
    found = rows.read(data.kind, data.path, split=data.split, style=data.style, seed=data.sums_seed, count=data.count)
    try:
        functions = combine.functions(config.rewards.functions)
    except ValueError as error:
        raise ConfigurationError(f"[rewards]: {error}") from None
    _columns(config, found)
    if not data.offline:
        _answers(functions, found, data.answer_column)
        _needs(functions, found)
    return Inputs(found, functions)


def _columns(config: Config, found: Sequence[rows.Row]) -> None:
    """Every row has the text columns that the configuration names, and the answer's name is not a slip of the pen."""
    data = config.data
    named = {"prompt": data.prompt_column, "chosen": data.chosen_column, "rejected": data.rejected_column}
    for role, column in named.items():
        for index, row in enumerate(found if column is not None else ()):
            prompts.text_of(row, str(column), index, f"data.{role}_column")
    usual = type(data).model_fields["answer_column"].default
    if data.answer_column != usual and not any(data.answer_column in row for row in found):
        raise rows.DataError(prompts.absent(found[0], data.answer_column, 0, "data.answer_column"))


def _answers(functions: Sequence[combine.Function], found: Sequence[rows.Row], column: str) -> None:
    """Accuracy needs one number to compare with in every row."""
    if not any(function.kind == "accuracy" for function in functions):
        return
    for index, row in enumerate(found):
        if column not in row:
            raise rows.DataError(f"the reward 'accuracy': {prompts.absent(row, column, index, 'data.answer_column')}")
        if numbers.exact(row[column]) is None:
            raise rows.DataError(
                f"row {index}: {column!r} is {row[column]!r}, must be {numbers.EXPECTED} for the reward 'accuracy'; "
                "compare other answers by a function of your own"
            )


def _needs(functions: Sequence[combine.Function], found: Sequence[rows.Row]) -> None:
    """One's own function finds a column for each argument that it cannot do without."""
    columns = {str(key) for row in found for key in row}
    for function in functions:
        if isinstance(function.score, user.Own) and (missing := sorted(function.score.needed - columns)):
            raise ConfigurationError(
                f"[rewards]: {function.name!r} has the argument {missing[0]!r}, which is no column of the data; it gets "
                f"prompts, completions and {', '.join(sorted(columns))}"
            )


def functions_used(config: Config, functions: Sequence[combine.Function]) -> list[dict[str, Any]]:
    """The reward functions for the audit: name, weight, and the sha256 of the file that one's own stands in."""
    used: list[dict[str, Any]] = []
    for function, setting in zip(functions, config.rewards.functions, strict=True):
        facts: dict[str, Any] = {"name": function.name, "weight": function.weight}
        source = getattr(setting, "function", "").rpartition(":")[0]
        if source.endswith(".py"):
            facts["file_digest"] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
        used.append(facts)
    return used
