"""Uv gets pip's settings, and pip is used without uv."""

import sys
from pathlib import Path

import pytest

from gates.subjects.peers import installer

LISTED = """
:env:.index-url='https://from.the.environment/simple'
:env:.find-links='/'
global.cert='/certificates'
global.index-url='https://from.a.file/simple'
global.trusted-host='one.example\\ntwo.example'
install.cert='/other'
freeze.user='true'
"""


def test_settings_of_pip_are_read() -> None:
    """Variables take precedence over the section of `pip install`, and that over the global section."""
    assert installer.parse_settings(LISTED) == {
        "cert": "/other",
        "find-links": "/",
        "index-url": "https://from.the.environment/simple",
        "trusted-host": "one.example\ntwo.example",
    }


def test_pip_settings_become_uv_variables() -> None:
    settings = {**installer.parse_settings(LISTED), "extra-index-url": "https://second.example/simple"}
    assert installer.uv_variables(settings, {}) == {
        "SSL_CERT_FILE": "/other",
        "UV_DEFAULT_INDEX": "https://from.the.environment/simple",
        "UV_FIND_LINKS": "/",
        "UV_INDEX": "https://second.example/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "one.example two.example",
    }


@pytest.mark.parametrize("variable", ["UV_DEFAULT_INDEX", "UV_INDEX_URL"])
def test_uv_keeps_its_own_index(variable: str) -> None:
    """Settings of uv, under new or old names, take precedence over pip's."""
    assert installer.uv_variables({"index-url": "https://pip.example"}, {variable: "https://uv.example"}) == {}


def test_a_missing_folder_is_ignored(tmp_path: Path) -> None:
    """Pip ignores a missing folder of wheels; uv would fail."""
    settings = {"find-links": f"{tmp_path / 'gone'} {tmp_path}"}
    assert installer.uv_variables(settings, {}) == {"UV_FIND_LINKS": str(tmp_path)}


def test_pip_is_used_without_uv(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without uv next to the interpreter, venv and pip are used with the unchanged environment variables."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://pip.example")
    assert installer.make_command(tmp_path / "new") == [
        str(tmp_path / "python"),
        "-I",
        "-m",
        "venv",
        str(tmp_path / "new"),
    ]
    command = installer.install_command(tmp_path / "new" / "bin" / "python", tmp_path / "pins.txt")
    assert command[:5] == [str(tmp_path / "new" / "bin" / "python"), "-I", "-m", "pip", "install"]
    assert "UV_DEFAULT_INDEX" not in installer.environment_variables()
