"""Small subjects in files of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

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
