"""Find who is judged where nobody is named: Gates' own subjects in its checkout, elsewhere the files named *_gates.py."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from gates.config.own_subjects import OWN
from gates.model import ConfigurationError

SUFFIX = "_gates.py"
CHECKOUT = Path(__file__).resolve().parents[2]
SKIPPED = frozenset(("node_modules", "site-packages", "build", "dist"))  # folders that hold other people's code
MOST_FOLDERS = 5_000  # a project has fewer; a home folder has more, and would take minutes


def subjects_here(here: Path, root: Path) -> tuple[str, ...]:
    """Return the files named *_gates.py in `here` and below it; none in the checkout of Gates, which judges its own.

    Args:
        here: the folder that the command runs in.
        root: the root of its project.

    Raises:
        ConfigurationError: there is none, or too many folders to look through; the message says what to do.
    """
    if root.resolve() == CHECKOUT and (CHECKOUT / "rust").is_dir():
        return ()
    found = sorted(files(here, SUFFIX))
    if not found:
        raise ConfigurationError(
            f"nobody to judge: {here} has no file named *{SUFFIX}, and no subjects in [tool.gates] of a pyproject.toml. "
            "`gates init NAME` writes a file to fill in, `gates check FILE.py` judges one, and "
            f"`gates check --subject numpy` judges one of Gates' own subjects ({', '.join(OWN)})"
        )
    return tuple(map(str, found))


def files(here: Path, suffix: str) -> Iterator[Path]:
    """Yield the files in `here` and below it whose names end so, outside hidden folders, environments and builds.

    Raises:
        ConfigurationError: there are too many folders to look through.
    """
    for number, (folder, below, names) in enumerate(os.walk(here), 1):
        if number > MOST_FOLDERS:
            raise ConfigurationError(
                f"{here} has more than {MOST_FOLDERS:,} folders to look through: "
                "name the file, as in `gates check FILE.py`, or run this in the folder of your project"
            )
        below[:] = [name for name in below if not name.startswith(".") and name not in SKIPPED]
        below[:] = [name for name in below if not Path(folder, name, "pyvenv.cfg").is_file()]
        yield from (Path(folder, name) for name in names if name.endswith(suffix))
