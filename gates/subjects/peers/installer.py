"""Commands that make and fill a virtual environment: with uv if it is installed next to this interpreter, else with pip.

uv does not read pip's configuration. The machine decides where packages come from, so pip's settings are passed to uv as
environment variables of that command, and never written to a file.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PIP = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
SECTIONS = ("global", "install", ":env:")  # sections of `pip config list`; later ones take precedence
VARIABLES = {  # pip's setting: uv's variable, separator of several values
    "cert": ("SSL_CERT_FILE", " "),
    "client-cert": ("SSL_CLIENT_CERT", " "),
    "default-timeout": ("UV_HTTP_TIMEOUT", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "no-index": ("UV_NO_INDEX", " "),
    "proxy": ("ALL_PROXY", " "),
    "retries": ("UV_HTTP_RETRIES", " "),
    "timeout": ("UV_HTTP_TIMEOUT", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}
OTHER_NAMES = {
    "UV_DEFAULT_INDEX": "UV_INDEX_URL",
    "UV_INDEX": "UV_EXTRA_INDEX_URL",
}  # older names, which uv still reads


def uv() -> Path | None:
    """Return the uv next to this interpreter, or None; never one from the user's PATH."""
    path = Path(sys.executable).parent / "uv"
    return path if os.access(path, os.X_OK) else None


def make_command(path: Path) -> list[str]:
    """Return the command that makes an empty environment of this interpreter's version at `path`."""
    program = uv()
    if program is None:
        return [sys.executable, "-I", "-m", "venv", str(path)]
    return [
        str(program),
        "venv",
        "--quiet",
        "--no-project",
        "--no-python-downloads",
        "--python",
        sys.executable,
        str(path),
    ]


def install_command(python: Path, requirements: Path, *, bytecode: bool = True, listed: bool = False) -> list[str]:
    """Return the command that installs a requirements file into the environment of `python`.

    pip always compiles bytecode, uv only with `bytecode`, which timing needs. With `listed`, dependencies are not installed.
    """
    alone = ["--no-deps"] if listed else []
    program = uv()
    if program is None:
        return [str(python), "-I", *PIP, *alone, "--requirement", str(requirements)]
    options = ["--no-progress", "--color=never", *(["--compile-bytecode"] if bytecode else []), "--python", str(python)]
    return [str(program), "pip", "install", *options, *alone, "--requirement", str(requirements)]


def environment_variables() -> dict[str, str]:
    """Return this process's environment, with pip's settings translated for uv unless uv's own are set."""
    mine = dict(os.environ)
    if uv() is None:
        return mine
    return {**uv_variables(pip_settings(), mine), **mine}


def pip_settings() -> dict[str, str]:
    """Return pip's settings from files and variables by name; {} without pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_settings(done.stdout) if done.returncode == 0 else {}


def parse_settings(text: str) -> dict[str, str]:
    """Read the lines of `pip config list`, such as `global.index-url='…'`; variables take precedence over files."""
    values: dict[tuple[int, str], str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if separator and section in SECTIONS:
            values[SECTIONS.index(section), name] = str(ast.literal_eval(value))
    return {name: values[precedence, name] for precedence, name in sorted(values)}


def uv_variables(settings: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """Translate pip's settings into uv's variables, except those `taken` under a new or an old name."""
    variables: dict[str, str] = {}
    for name, (variable, between) in VARIABLES.items():
        values = settings.get(name, "").split()
        if name == "find-links":  # pip ignores a missing folder, uv fails
            values = [value for value in values if "://" in value or Path(value).expanduser().exists()]
        if values and not {variable, OTHER_NAMES.get(variable, variable)} & set(taken):
            variables[variable] = between.join(values)
    if "UV_INDEX" in variables and "UV_INDEX_STRATEGY" not in taken:
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # like pip: the best version of all indexes
    return variables
