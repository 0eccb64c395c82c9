"""Checkpoint folders such as `step-00000010`: written atomically, with a digest of each file, and verified before they are loaded.

A folder is written as `.part`, synced and renamed; before it is removed it is renamed to `.old`. A kill at any moment leaves intact
folders, and leftovers under other names that the next run removes.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from gates_reference.trainer import storage

STATE: Final = "state.json"
_NAME: Final = re.compile(r"step-([0-9]{8,19})")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def save(folder: Path, step: int, state: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
    """Write the checkpoint of `step`: first the files by `write(part)`, then the state with their digests."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / f"step-{step:08d}"
    part = whole.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir()
    write(part)
    files = sorted(path for path in part.iterdir() if path.is_file())
    for path in files:
        storage.sync(path)
    content = {"step": step, **state, "files": {path.name: _digest(path) for path in files}}
    storage.write(part / STATE, json.dumps(content, indent=2, sort_keys=True, allow_nan=False).encode() + b"\n")
    storage.sync(part)
    if whole.exists():  # from a run that was killed after this rename and resumed from an earlier checkpoint
        _remove(whole)
    part.rename(whole)
    storage.sync(folder)
    return whole


def _remove(whole: Path) -> None:
    old = whole.with_suffix(".old")
    shutil.rmtree(old, ignore_errors=True)
    whole.rename(old)
    shutil.rmtree(old)


def steps(folder: Path) -> dict[int, Path]:
    """Return the checkpoints of a folder by step, the oldest first."""
    if not folder.is_dir():
        return {}
    matches = [(match, path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name)) and path.is_dir()]
    return dict(sorted((int(match.group(1)), path) for match, path in matches))


def prune(folder: Path, keep: int, given_up: Collection[int] = ()) -> None:
    """Remove the checkpoints of the steps `given_up`, then all but the newest `keep`, and leftovers of killed runs.

    A run gives up the steps after the one that it resumed from: their checkpoints are damaged and would count as the newest. This is
    called after a checkpoint has been saved, so that an intact one always exists.
    """
    checkpoints = steps(folder)
    for step in sorted(set(given_up) & set(checkpoints)):
        _remove(checkpoints.pop(step))
    for path in list(checkpoints.values())[:-keep]:
        _remove(path)
    for path in folder.glob("step-*"):
        if path.suffix in {".part", ".old"}:
            shutil.rmtree(path, ignore_errors=True)


def verified(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return the state of a checkpoint if every file has its digest, else None and what is wrong."""
    try:
        state = json.loads((path / STATE).read_bytes())
        wrong = [name for name, digest in state["files"].items() if _digest(path / name) != digest]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{type(error).__name__}: {error}"
    return (None, f"{wrong[0]} has changed or is torn") if wrong else (state, "")


def newest(folder: Path) -> tuple[Path | None, dict[str, Any], list[str]]:
    """Return the newest intact checkpoint (None if there is none), its state, and a warning for each newer damaged one."""
    warnings: list[str] = []
    for path in reversed(steps(folder).values()):
        state, why = verified(path)
        if state is not None:
            return path, state, warnings
        warnings.append(f"{path} is not whole and was not used ({why})")
    return None, {}, warnings
