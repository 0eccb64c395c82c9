"""`[tool.gates]`: defaults of `gates check`, and their precedence."""

from pathlib import Path

import pytest
from command_line import RIGHT, here

from gates.config.settings import Settings, read, root
from gates.model import ConfigurationError
from gates.results.jsonl import read as read_results


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'subject = ["x"]',
            "[tool.gates] has no 'subject', did you mean 'subjects'; legal are fail_on, format, jobs, model",
        ),
        ("nonsense = 1", "[tool.gates] has no 'nonsense'; legal are"),
        ("jobs = -1", "jobs: Input should be greater than or equal to 0, found -1"),
        ('jobs = "2"', "jobs: Input should be a valid integer, found '2'"),
        ('subjects = "x"', "subjects: Input should be a valid list"),
        ('format = "html5"', "format: Input should be 'text', 'md'"),
    ],
)
def test_a_mistake_is_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    """It names the file, the value found, the legal values and the nearest name."""
    (tmp_path / "pyproject.toml").write_text(f"[tool.gates]\n{text}\n")
    with pytest.raises(ConfigurationError) as error:
        read(tmp_path)
    assert message in str(error.value)
    assert str(tmp_path / "pyproject.toml") in str(error.value)


@pytest.mark.parametrize("text", ["tool = 3", "[tool]\ngates = 3", "[tool.other]\nx = 1", "[project]\nname = 'x'"])
def test_a_project_without_the_table_has_the_defaults(tmp_path: Path, text: str) -> None:
    """Tables of other tools are ignored; a `gates` that is not a table is refused."""
    (tmp_path / "pyproject.toml").write_text(text)
    if "gates" in text:
        with pytest.raises(ConfigurationError, match="must be a table"):
            read(tmp_path)
    else:
        assert read(tmp_path) == Settings()


def test_paths_are_relative_to_the_root(tmp_path: Path) -> None:
    """Paths of subjects, output and waivers are resolved; names are unchanged."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gates]\nsubjects = ["a/b.py", "c.py", "numpy"]\nout = "o"\nwaivers = "w.toml"\nmodel = "org/name"\n'
        'python = "python3"\n'
    )
    settings = read(tmp_path)
    assert settings.subjects == [str(tmp_path / "a/b.py"), str(tmp_path / "c.py"), "numpy"]
    assert (settings.out, settings.waivers) == (str(tmp_path / "o"), str(tmp_path / "w.toml"))
    assert (settings.model, settings.python) == ("org/name", "python3")


@pytest.mark.parametrize(
    ("python", "wanted"),
    [("venv/bin/python", "{}/venv/bin/python"), ("./p", "{}/p"), ("/usr/bin/p", "/usr/bin/p"), ("python3", "python3")],
)
def test_an_interpreter_with_a_folder_is_a_path(tmp_path: Path, python: str, wanted: str) -> None:
    """It is relative to the project's root; a bare name is looked up in PATH."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.gates]\npython = "{python}"\n')
    assert read(tmp_path).python == wanted.format(tmp_path)


def test_the_root_is_found_from_a_subfolder(tmp_path: Path) -> None:
    """The nearest folder with a pyproject.toml, a gates.toml or a .git; else the current one."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert root(below) == below
    (tmp_path / ".git").mkdir()
    assert root(below) == tmp_path
    (tmp_path / "a" / "gates.toml").touch()
    assert root(below) == tmp_path / "a"


@pytest.mark.parametrize(
    ("arguments", "gate", "seed", "form"),
    [
        ([], "packing.truncates-only-by-name", 5, "<?xml"),
        (["philox.known-answers", "--seed", "6", "--format", "jsonl"], "philox.known-answers", 6, '{"record"'),
    ],
    ids=["settings", "command line"],
)
def test_the_command_line_wins(tmp_path: Path, arguments: list[str], gate: str, seed: int, form: str) -> None:
    """Otherwise the settings apply, from any folder below the root."""
    (tmp_path / "mine.py").write_text(RIGHT)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.gates]\nsubjects = ["mine.py"]\nselect = ["packing.truncates-only-by-name"]\nseed = 5\nout = "kept"\n'
        'format = "junit"\nrequire = ["mine", "numpy"]\njobs = 1\n'
    )
    (tmp_path / "below").mkdir()
    done = here("check", *arguments, cwd=tmp_path / "below")
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith(form)
    (file,) = (tmp_path / "kept").glob("*.jsonl")
    header = read_results(file).header
    assert (header.gates, header.subjects, header.seed, header.jobs) == ([gate], ["mine"], seed, 1)


@pytest.mark.parametrize(
    ("require", "code"),
    [("mine:packng", 2), ("mine:kl", 3), ("mine:packing", 1)],
    ids=["misspelt", "another run", "its own"],
)
def test_a_requirement_for_an_unknown_gate_is_refused(tmp_path: Path, require: str, code: int) -> None:
    """Another run may judge a gate that is not selected here, but no run can judge an unknown one."""
    (tmp_path / "mine.py").write_text("OPS = {'philox4x32_10': lambda **inputs: {}}\n")
    (tmp_path / "pyproject.toml").write_text(f'[tool.gates]\nsubjects = ["mine.py"]\nrequire = ["{require}"]\n')
    done = here("check", "packing.truncates-only-by-name", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert (f"[tool.gates] require {require}: no gate matches 'packng'" in done.stderr) == (code == 2)


@pytest.mark.parametrize(
    ("require", "arguments", "code"),
    [
        ("mine", [], 3),
        ("miner", [], 2),
        ("miner:philox", [], 2),
        ("mine", ["--subject", "numpy"], 0),
        ("miner", ["--subject", "numpy"], 2),
        ("numpy", [], 3),
    ],
    ids=["its own", "misspelt", "misspelt with gates", "another run", "misspelt in another run", "shipped"],
)
def test_a_requirement_for_an_unknown_subject_is_refused(
    tmp_path: Path, require: str, arguments: list[str], code: int
) -> None:
    """The requirement of a subject that the project does not list would have no effect."""
    (tmp_path / "mine.py").write_text("OPS = {'philox4x32_10': lambda **inputs: {}}\n")
    (tmp_path / "pyproject.toml").write_text(f'[tool.gates]\nsubjects = ["mine.py"]\nrequire = ["{require}"]\n')
    done = here("check", "packing.truncates-only-by-name", *arguments, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert (f"[tool.gates] require {require}: 'miner' is no subject of this project" in done.stderr) == (code == 2)
