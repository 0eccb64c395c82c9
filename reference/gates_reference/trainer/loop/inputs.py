"""Read a run's data and reward functions, and check them against each other before a model is loaded."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates_reference.trainer.adapters import saved
from gates_reference.trainer.config.errors import ConfigurationError
from gates_reference.trainer.config.read import Config
from gates_reference.trainer.data import prompts, rows
from gates_reference.trainer.rewards import combine, numbers, user


@dataclass(frozen=True, slots=True)
class Inputs:
    """The rows of data as stored, and the reward functions."""

    rows: list[rows.Row]
    functions: list[combine.Function]

    def digest(self) -> str:
        """Return the sha256 of the rows; values that JSON does not have count as their Python `repr`."""
        hasher = hashlib.sha256()
        for row in self.rows:
            hasher.update(json.dumps(dict(row), sort_keys=True, default=repr).encode() + b"\n")
        return hasher.hexdigest()


def read(config: Config) -> Inputs:
    """Read and check everything that a configuration names except the model.

    Raises:
        DataError: the data is missing or wrong, or lacks a column.
        ConfigurationError: a reward function is wrong or needs a missing column, or `model.adapter_path` holds no adapters, or
            adapters of another kind, rank or scale than [adapter].
    """
    if config.model.adapter_path is not None:
        saved.require_equal(Path(config.model.adapter_path), config.adapter)
    data = config.data
    records = rows.read(data.kind, data.path, split=data.split, style=data.style, seed=data.sums_seed, count=data.count)
    try:
        functions = combine.functions(config.rewards.functions)
    except ValueError as error:
        raise ConfigurationError(f"[rewards]: {error}") from None
    _columns(config, records)
    if not data.offline:
        _answers(functions, records, data.answer_column)
        _needs(functions, records)
    return Inputs(records, functions)


def _columns(config: Config, records: Sequence[rows.Row]) -> None:
    """Check that every row has the text columns that the configuration names, and that some row has the answer column."""
    data = config.data
    named = {"prompt": data.prompt_column, "chosen": data.chosen_column, "rejected": data.rejected_column}
    for role, column in named.items():
        for index, row in enumerate(records if column is not None else ()):
            prompts.text_of(row, str(column), index, f"data.{role}_column")
    usual = type(data).model_fields["answer_column"].default
    if data.answer_column != usual and not any(data.answer_column in row for row in records):
        raise rows.DataError(prompts.absent(records[0], data.answer_column, 0, "data.answer_column"))


def _answers(functions: Sequence[combine.Function], records: Sequence[rows.Row], column: str) -> None:
    """Check that every row has one number as answer if the reward "accuracy" is used."""
    if not any(function.kind == "accuracy" for function in functions):
        return
    for index, row in enumerate(records):
        if column not in row:
            raise rows.DataError(f"the reward 'accuracy': {prompts.absent(row, column, index, 'data.answer_column')}")
        if numbers.exact(row[column]) is None:
            raise rows.DataError(
                f"row {index}: {column!r} is {row[column]!r}, must be {numbers.EXPECTED} for the reward 'accuracy'; "
                "compare other answers by a function of your own"
            )


def _needs(functions: Sequence[combine.Function], records: Sequence[rows.Row]) -> None:
    """Check that the data has a column for each required argument of the user's functions."""
    columns = {str(key) for row in records for key in row}
    for function in functions:
        if isinstance(function.score, user.Own) and (missing := sorted(function.score.needed - columns)):
            raise ConfigurationError(
                f"[rewards]: {function.name!r} has the argument {missing[0]!r}, which is no column of the data; it gets "
                f"prompts, completions and {', '.join(sorted(columns))}"
            )


def functions_used(config: Config, functions: Sequence[combine.Function]) -> list[dict[str, Any]]:
    """Describe the reward functions for the audit: name, weight, and the sha256 of the file of a user's function."""
    used: list[dict[str, Any]] = []
    for function, setting in zip(functions, config.rewards.functions, strict=True):
        facts: dict[str, Any] = {"name": function.name, "weight": function.weight}
        source = getattr(setting, "function", "").rpartition(":")[0]
        if source.endswith(".py"):
            facts["file_digest"] = hashlib.sha256(Path(source).read_bytes()).hexdigest()
        used.append(facts)
    return used
