"""Open a recorded step: check its header, then read its arrays by rows.

The safetensors library checks header, sizes and offsets, and executes nothing from the file. Each read maps the file anew,
so that pages do not stay in memory.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from gates.errors import unreadable
from gates.model import Array, ConfigurationError
from gates.nearest import hint
from gates.recorded import settings as setting
from gates.recorded.fields import FLOATS, LIKE_POLICY, METRIC, ROWS, SCALARS, SLOTS, TENSORS, TRACE, Tensor

WIDEST = 1 << 18  # slots of a row, since a row is read at once
MOST_ROWS = 1 << 22  # rows, since arrays of shape (B,) are read at once


@dataclass(frozen=True, slots=True)
class StepFile:
    """A file with the header of a recorded step.

    Attributes:
        path: where it is.
        shapes: of each tensor.
        dtypes: of each tensor, as safetensors names them.
        settings: parsed from the metadata.
        rows: B.
        width: T; 0 without a (B, T) array.
    """

    path: Path
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    settings: Mapping[str, Any]
    rows: int
    width: int

    def __contains__(self, name: object) -> bool:
        return name in self.shapes

    @property
    def name(self) -> str:
        """The file name, which names the step in reports."""
        return str(self.settings.get("name") or self.path.name)

    @property
    def metrics(self) -> list[str]:
        """The names of the logged metrics."""
        return [name.removeprefix(METRIC) for name in self.shapes if name.startswith(METRIC)]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Return rows of a tensor, or a scalar as an array of shape ()."""
        try:
            with safe_open(self.path, framework="np") as file:
                if len(self.shapes[name]) == 2 or (start, stop) != (0, None):
                    values = file.get_slice(name)[start : self.rows if stop is None else stop]
                else:
                    values = file.get_tensor(name)
        except OSError as error:
            raise unreadable(self.path, error) from None
        except SafetensorError as error:
            raise ConfigurationError(f"{self.path} changed while it was read: {error}") from None
        return np.asarray(values)

    def number(self, name: str) -> float:
        """Return a scalar tensor."""
        return float(self.read(name).reshape(-1)[0])


def open_step(path: Path) -> StepFile:
    """Read and check the header of a file from an untrusted source.

    Raises:
        ConfigurationError: the file is missing, torn or not a recorded step; the message names tensor and remedy.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # reading a pipe could block for ever, and a device has no end
            raise ConfigurationError(f"cannot read {path}: is no regular file; write a pipe to a file first")
        with safe_open(path, framework="np") as file:
            metadata = dict(file.metadata() or {})
            names = [name for name in file.keys() if not name.startswith(f"{TRACE}.")]  # noqa: SIM118  not a mapping
            slices = {name: file.get_slice(name) for name in names}
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            dtypes = {name: str(part.get_dtype()) for name, part in slices.items()}
    except OSError as error:
        raise unreadable(path, error) from None
    except (SafetensorError, ValueError) as error:
        raise ConfigurationError(f"{path} is torn or no safetensors file: {error}; write it again, whole") from None
    try:
        settings = setting.parse(metadata)
        rows, width = _checked(shapes, dtypes)
        setting.check(settings, shapes, rows)
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return StepFile(path, shapes, dtypes, settings, rows, width)


def _checked(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> tuple[int, int]:
    """Check the shapes and dtypes of all tensors; return B and T."""
    for name, shape in shapes.items():
        _known(name, shape, dtypes[name])
    sized = next((name for name in TENSORS if name in shapes and len(shapes[name]) == 2), None) or next(
        (name for name in TENSORS if name in shapes and shapes[name] and name not in SCALARS), None
    )
    if sized is None:
        raise ConfigurationError("it has no tensor with a row for each completion; docs/recorded-steps.md lists them")
    rows, width = shapes[sized][0], shapes[sized][1] if len(shapes[sized]) == 2 else 0
    if not rows or (len(shapes[sized]) == 2 and not width):
        raise ConfigurationError(
            f"tensor `{sized}` has shape {list(shapes[sized])}, must have a row and a slot at least"
        )
    for name, shape in shapes.items():
        wanted = {1: (rows,), 2: (rows, width)}.get(len(shape), shape)
        if name in TENSORS and name not in SCALARS and shape != wanted:
            raise ConfigurationError(
                f"tensor `{name}` has shape {list(shape)}, must be {list(wanted)} as `{sized}` has"
            )
    if rows > MOST_ROWS or width > WIDEST:
        raise ConfigurationError(
            f"tensor `{sized}` has {rows} rows of {width} slots, must have at most {MOST_ROWS} of {WIDEST}: record a part"
        )
    _together(shapes, dtypes)
    return rows, width


def _known(name: str, shape: tuple[int, ...], dtype: str) -> None:
    """Refuse an unknown tensor, or one of a wrong shape or dtype."""
    tensor = Tensor(("()",), FLOATS, "") if name.startswith(METRIC) else TENSORS.get(name)
    if tensor is None:
        raise ConfigurationError(f"tensor `{name}` is unknown{hint(name, TENSORS)}; docs/recorded-steps.md lists them")
    axes = [{ROWS: 1, SLOTS: 2}.get(allowed, 0) for allowed in tensor.shapes]
    if not (len(shape) in axes or (axes == [0] and int(np.prod(shape)) == 1)):
        raise ConfigurationError(f"tensor `{name}` has shape {list(shape)}, must be {' or '.join(tensor.shapes)}")
    if dtype not in tensor.dtypes:
        half = dtype in {"BF16", "F16"} and "F32" in tensor.dtypes
        remedy = "; write it with `.float()`, which loses nothing" if half else ""
        raise ConfigurationError(f"tensor `{name}` has dtype {dtype}, must be {' or '.join(tensor.dtypes)}{remedy}")


def _together(shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> None:
    """Refuse tensors that need an absent one, and dtypes that differ from that of `policy`."""
    if "policy" in shapes:
        wanted = dtypes["policy"]
        for name in LIKE_POLICY:
            if name in shapes and dtypes[name] != wanted:
                raise ConfigurationError(
                    f"tensor `{name}` has dtype {dtypes[name]}, `policy` {wanted}: write both in the dtype in which the loss "
                    "was computed"
                )
    pair = ("rewards", "advantages")
    if all(name in shapes for name in pair) and dtypes["rewards"] != dtypes["advantages"]:
        raise ConfigurationError(
            f"tensor `rewards` has dtype {dtypes['rewards']}, `advantages` {dtypes['advantages']}: write both in the dtype "
            "in which the advantages were computed"
        )
    for name, needed in (
        ("auxiliary_loss", "loss"),
        ("gradient", "loss"),
        ("row_losses", "loss"),
        ("loss", "policy"),
        ("loss", "advantages"),
    ):
        if name in shapes and needed not in shapes:
            raise ConfigurationError(f"tensor `{name}` is given without `{needed}`: add it")
