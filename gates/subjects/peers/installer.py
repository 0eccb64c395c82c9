"""Commands that make a virtual environment and fill it: with uv where it is installed beside this interpreter, else with pip.

uv does not read pip's configuration. Where packages come from is the machine's business, so pip's settings are passed on to
uv as environment variables of that one command, and written nowhere.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PIP = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off")
SECTIONS = ("global", "install", ":env:")  # of `pip config list`, the later ones win
VARIABLES = {  # pip's setting, uv's variable, what uv puts between several values
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
OTHER_NAMES = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}  # older ones, which uv still reads


def uv() -> Path | None:
    """Return the uv that is installed beside this interpreter, if there is one; never one of the user's PATH."""
    found = Path(sys.executable).parent / "uv"
    return found if os.access(found, os.X_OK) else None


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

    pip always compiles bytecode. uv does so where `bytecode` asks for it: what is timed later must not compile it.
    With `listed` nothing is installed but what the file lists.
    """
    alone = ["--no-deps"] if listed else []
    program = uv()
    if program is None:
        return [str(python), "-I", *PIP, *alone, "--requirement", str(requirements)]
    options = ["--no-progress", "--color=never", *(["--compile-bytecode"] if bytecode else []), "--python", str(python)]
    return [str(program), "pip", "install", *options, *alone, "--requirement", str(requirements)]


def environment_variables() -> dict[str, str]:
    """Return this process's environment, with pip's settings in uv's words where uv is used and has no word of its own."""
    mine = dict(os.environ)
    if uv() is None:
        return mine
    return {**uv_variables(pip_settings(), mine), **mine}


def pip_settings() -> dict[str, str]:
    """Return what is configured for pip in its files and variables, by the name of the setting; {} where pip is missing."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_settings(done.stdout) if done.returncode == 0 else {}


def parse_settings(text: str) -> dict[str, str]:
    """Read the lines of `pip config list`, such as `global.index-url='…'`; variables win over files."""
    found: dict[tuple[int, str], str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if separator and section in SECTIONS:
            found[SECTIONS.index(section), name] = str(ast.literal_eval(value))
    return {name: found[place, name] for place, name in sorted(found)}


def uv_variables(settings: Mapping[str, str], taken: Mapping[str, str]) -> dict[str, str]:
    """Translate pip's settings into uv's variables; what is `taken`, by the older names too, stays as it is."""
    made: dict[str, str] = {}
    for name, (variable, between) in VARIABLES.items():
        values = settings.get(name, "").split()
        if name == "find-links":  # pip passes over a folder that is not there, uv ends with an error
            values = [value for value in values if "://" in value or Path(value).expanduser().exists()]
        if values and not {variable, OTHER_NAMES.get(variable, variable)} & set(taken):
            made[variable] = between.join(values)
    if "UV_INDEX" in made and "UV_INDEX_STRATEGY" not in taken:
        made["UV_INDEX_STRATEGY"] = "unsafe-best-match"  # as pip does: the best version of all indexes
    return made
