"""Judge and worker must be of one checkout: verdicts on the code of another one are refused."""

import shutil
import sys
import venv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gates
from gates import cli
from gates.model import ConfigurationError, Subject
from gates.registry import load
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.worker.process import Worker

ROOT = Path(gates.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files to another folder, as another checkout."""
    folder = tmp_path_factory.mktemp("copy")
    for package in ("gates", "reference"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def interpreter(folder: Path, checkout: Path) -> str:
    """Return an interpreter that has NumPy, and `gates` from this checkout."""
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "paths.pth").write_text(f"{checkout}\n{checkout / 'reference'}\n{Path(np.__file__).parents[1]}\n")
    return str(folder / "venv" / "bin" / "python")


def baseline(python: str) -> Subject:
    """Return the shipped NumPy baseline, which imports its siblings from `gates`, in an interpreter."""
    return replace(load().subjects["numpy"], python=python)


def test_a_shipped_subject_with_code_of_another_checkout_is_refused(tmp_path: Path, copy: Path) -> None:
    """One sentence names interpreter, both folders and the remedy."""
    python = interpreter(tmp_path, copy)
    with pytest.raises(ConfigurationError) as refused:
        Worker.start(baseline(python), threads=1)
    message = str(refused.value)
    for part in (python, str(copy / "gates"), f"runs from {ROOT};", f"pip install -e {ROOT}"):
        assert part in message
    assert "\n" not in message


def test_the_run_stops(tmp_path: Path, copy: Path) -> None:
    """The run ends with an error instead of a verdict."""
    cases = plan(load().select(("kl.k3",)), [baseline(interpreter(tmp_path, copy))], quick=True)
    with pytest.raises(ConfigurationError, match="must be of one checkout"):
        list(run(cases, Options()))


def test_the_command_ends_with_2(
    tmp_path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`gates check` prints the sentence and no traceback."""
    monkeypatch.setitem(load().subjects, "numpy", baseline(interpreter(tmp_path, copy)))
    monkeypatch.setattr(
        sys, "argv", ["gates", "check", "kl.k3", "--quick", "--subject", "numpy", "--out", str(tmp_path / "out")]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "gates: subject numpy: its interpreter" in capsys.readouterr().err


def test_the_same_checkout_is_judged(tmp_path: Path) -> None:
    (judged, *_) = run(plan(load().select(("kl.k3",)), [baseline(interpreter(tmp_path, ROOT))], quick=True), Options())
    assert judged.verdict.status == "correct"


def test_a_user_file_may_import_another_checkout(tmp_path: Path, copy: Path) -> None:
    """The imports of a user's file are part of the judged code."""
    file = tmp_path / "mine.py"
    file.write_text("import gates.model\n\n\ndef double(x):\n    return {'y': 2 * x}\n\n\nOPS = {'double': double}\n")
    worker = Worker.start(Subject("mine", file, "mine", interpreter(tmp_path, copy)), threads=1)
    worker.close()
    assert "double" in worker.hello.provides
