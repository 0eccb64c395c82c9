"""Who is judged where nobody is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import RIGHT, here

from gates.config import finding
from gates.config.finding import CHECKOUT, subjects_here
from gates.model import ConfigurationError


def made(folder: Path, *names: str) -> None:
    """Write a subject to each of these files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(RIGHT)


def test_files_are_found_here_and_below(tmp_path: Path) -> None:
    """Sorted; neither in hidden folders nor in environments, builds or other people's packages."""
    made(tmp_path, "b_gates.py", "ci/a_gates.py", "mine.py", ".tox/x_gates.py", "node_modules/x_gates.py")
    made(tmp_path, "env/lib/x_gates.py", "build/x_gates.py")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert subjects_here(tmp_path, tmp_path) == (str(tmp_path / "b_gates.py"), str(tmp_path / "ci" / "a_gates.py"))


def test_the_checkout_judges_its_own() -> None:
    """Nothing is looked for."""
    assert subjects_here(CHECKOUT / "docs", CHECKOUT) == ()


def test_nobody_is_a_usage_error_that_says_what_to_do(tmp_path: Path) -> None:
    """Gates' own subjects are not judged in a user's folder."""
    done = here("check", cwd=tmp_path)
    assert done.returncode == 2
    assert "nobody to judge" in done.stderr
    assert "gates init NAME" in done.stderr
    assert "--subject numpy" in done.stderr


def test_too_many_folders_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder would take minutes."""
    monkeypatch.setattr(finding, "MOST_FOLDERS", 2)
    made(tmp_path, "a/x_gates.py", "b/y_gates.py", "c/z_gates.py")
    with pytest.raises(ConfigurationError, match="more than 2 folders"):
        subjects_here(tmp_path, tmp_path)


@pytest.mark.parametrize("arguments", [(), ("mine_gates.py",), ("./mine_gates.py", "advantages.constant-group")])
def test_a_found_and_a_named_file_are_judged(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Nobody but the file, which is named where the command line does not name it."""
    made(tmp_path, "mine_gates.py")
    done = here("check", *arguments, "-k", "advantages.constant-group", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mine_gates · 1 op judged · 1 correct")
    assert ("judging mine_gates (found in" in done.stderr) is (arguments == ())


def test_settings_win_over_files(tmp_path: Path) -> None:
    """A project that lists its subjects is not searched."""
    made(tmp_path, "mine_gates.py", "ci/listed.py")
    (tmp_path / "pyproject.toml").write_text('[tool.gates]\nsubjects = ["ci/listed.py"]\n')
    done = here("check", "advantages.constant-group-is-zero", cwd=tmp_path)
    assert done.stdout.startswith("listed · 1 op judged"), done.stderr
    assert "judging listed (named in" in done.stderr
