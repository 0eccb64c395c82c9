"""`make setup` without a network: one sentence, and an exit code that stops make."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "tools" / "install_packages.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Load tools/install_packages.py as a module."""
    spec = importlib.util.spec_from_file_location("install_packages", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("retries", ["0", "1"])
def test_an_unreachable_index_is_one_sentence(tmp_path: Path, retries: str) -> None:
    """With a new environment and a closed local port; without retries pip gives no reason."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=120)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound but not listening, so connections are refused
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/simple"
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
        variables = {
            "PIP_INDEX_URL": address,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": retries,
            "PIP_NO_CACHE_DIR": "1",
        }
        done = subprocess.run(
            [str(tmp_path / "venv" / "bin" / "python"), str(TOOL)],
            env=own | variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("set-up needs ")
    assert "no package index" in last
    assert "check the network, or what pip is configured with (" in last
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("errors", "wanted"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'",
            "set-up needs the packages of constraints.txt, but no package index answers: check the network",
        ),
        ("error: Failed to fetch: `…`\n  Caused by: dns error", "no package index answers"),
        ("WARNING: [Errno -2] Name or service not known", "no package index answers"),
        (
            "ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\nERROR: No match",
            "set-up needs x==1, but no package index that pip knows has it: check the network",
        ),
        ("ERROR: Hashes differ\n  more\n", "the packages of constraints.txt cannot be installed: ERROR: Hashes differ"),
        ("", "the packages of constraints.txt cannot be installed: no reason given"),
    ],
)
def test_errors_become_one_sentence(tool: ModuleType, errors: str, wanted: str) -> None:
    """Errors of pip or uv in one sentence."""
    sentence = tool.reason(errors)
    assert wanted in sentence
    assert "\n" not in sentence


def test_pip_is_tried_if_uv_fails(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Uv is not available on every machine; an index unreachable for uv is unreachable for pip."""
    answers = [(1, "ERROR: no matching distribution found for uv"), (0, "")]
    calls: list[list[str]] = []

    def run(command: list[str], variables: object = None) -> tuple[int, str]:
        calls.append(command)
        return answers[len(calls) - 1]

    monkeypatch.setattr(tool, "run", run)
    assert tool.main() == 0
    assert "uv could not install the packages: trying pip." in capsys.readouterr().err
    calls.clear()
    answers[0] = (1, "connection refused")
    assert tool.main() == 1
    assert len(calls) == 1
