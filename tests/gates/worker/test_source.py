"""A subject is judged as its file stands."""

import os
from pathlib import Path

import pytest

from gates.worker import declarations


def test_an_edit_of_the_same_second_and_size_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytecode would not tell it from the version before, and none is left in the user's folder."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for number in (1, 2):
        file.write_text(f"OPS = {{'number': {number}}}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        loaded = declarations.load("gates_tested_subject", str(file), {})
        assert loaded.OPS["number"] == number
    assert not (tmp_path / "__pycache__").exists()
