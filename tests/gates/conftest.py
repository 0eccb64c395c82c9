"""Small subjects in files of their own, recorded runs to make pages of, and a browser to look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pages
import pytest
from chromium import PROGRAM, Browser, browser

from gates.model import Subject


@pytest.fixture
def subject(tmp_path: Path) -> Callable[[str], Subject]:
    """Return a maker of subjects from the body of their function `double(x)`."""

    def make(body: str, head: str = "", name: str = "tried") -> Subject:
        file = tmp_path / f"{name}.py"
        lines = "\n    ".join(body.splitlines())
        file.write_text(f"import numpy as np\n{head}\ndef double(x):\n    {lines}\n\nOPS = {{'double': double}}\n")
        return Subject(name, file, f"subject_{name}")

    return make


@pytest.fixture
def mixed(tmp_path: Path) -> list[Path]:
    """A check with one verdict of each status, and a proof with sensitivities and mutants."""
    return pages.mixed(tmp_path)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run in which every word of a subject tries to be markup."""
    return pages.hostile(tmp_path)


@pytest.fixture
def calibrated(tmp_path: Path) -> Path:
    """A calibration of five gates over 20 seeds: exact, near, nearer in a second block, two with false positives."""
    return pages.calibrated(tmp_path)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium."""
    if PROGRAM is None:
        pytest.skip("chromium is not installed: Debian's package chromium")
    with browser(tmp_path_factory.mktemp("profile")) as found:
        yield found
