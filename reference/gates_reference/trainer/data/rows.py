"""Read rows of data from a file, a data set of `datasets`, or the built-in sums; errors name the line."""

import importlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from gates_reference import sums
from gates_reference.trainer.config.errors import TrainerError

Row = Mapping[str, Any]
DEFAULT_SUMS: Final = 256


class DataError(TrainerError):
    """The data is wrong; the message names the file and the line."""


def read(
    kind: str,
    path: str | None,
    *,
    split: str = "train",
    style: Literal["plain", "worded"] = "plain",
    seed: int = 0,
    count: int | None = None,
) -> list[Row]:
    """Read the first `count` rows in their stored order (None: all, or 256 built-in sums).

    Raises:
        DataError: the file is missing or wrong, or a library that it needs is missing.
    """
    if kind == "sums":
        return [dict(row) for row in sums.sums(seed, count or DEFAULT_SUMS, style)]
    if path is None:
        raise DataError(f"data of kind {kind!r} needs a path")
    readers = {"json": _json, "jsonl": _jsonl, "parquet": _parquet}
    rows = _datasets(path, split) if kind == "datasets" else readers[kind](Path(path))
    taken: list[Row] = []
    for row in rows:
        if count is not None and len(taken) == count:
            break
        taken.append(row)
    if not taken:
        raise DataError(f"{path}: has no rows")
    return taken


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


def _parsed(text: str, where: str) -> Any:
    def integer(digits: str) -> int:
        try:
            return int(digits)
        except ValueError:
            why = f"an integer of {len(digits)} digits, which Python does not read; write it as a text"
            raise json.JSONDecodeError(why, text, text.index(digits)) from None

    try:
        return json.loads(text, parse_int=integer)
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"{where}: is no JSON that can be read ({error})") from None


def _decoded(raw: bytes, where: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: is no UTF-8 (byte {error.start})") from None


def _table(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise DataError(f'{where}: must be an object like {{"prompt": …}}, found {type(value).__name__}')
    return value


def _json(path: Path) -> Iterator[Row]:
    content = _parsed(_decoded(_bytes(path), str(path)), str(path))
    if not isinstance(content, list):
        raise DataError(
            f"{path}: must be a list of objects, found {type(content).__name__}; use kind = 'jsonl' for lines"
        )
    for number, value in enumerate(content):
        yield _table(value, f"{path}: item {number}")


def _jsonl(path: Path) -> Iterator[Row]:
    for number, line in enumerate(_bytes(path).split(b"\n"), start=1):
        if line.strip():
            where = f"{path}: line {number}"
            yield _table(_parsed(_decoded(line, where), where), where)


def _parquet(path: Path) -> Iterator[Row]:
    parquet = _library("pyarrow.parquet", "pyarrow")
    _bytes(path)
    try:
        yield from parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # pyarrow's own errors are both
        raise DataError(f"{path}: is no readable parquet file ({error})") from None


def _datasets(name: str, split: str) -> Iterator[Row]:
    """Read a saved data set's folder, or a name in the Hugging Face cache, without network access."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"
    datasets = _library("datasets", "datasets")
    try:
        saved = Path(name).is_dir() and any((Path(name) / f).exists() for f in ("state.json", "dataset_dict.json"))
        dataset = datasets.load_from_disk(name) if saved else datasets.load_dataset(name, split=split)
    except Exception as error:  # noqa: BLE001  the library raises its own, its hub's and the system's errors
        raise DataError(f"data set {name!r}: is not on this machine or cannot be read ({error})") from None
    if isinstance(dataset, dict):
        if split not in dataset:
            raise DataError(f"data set {name!r}: has no split {split!r}; it has {', '.join(sorted(dataset))}")
        dataset = dataset[split]
    yield from dataset


def _library(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(
            f"{name} is not installed; install it with: pip install '.[data]' in a checkout of Gates"
        ) from None
