"""Install the packages of constraints.txt into .venv, whose interpreter runs this; `make setup` calls it.

uv takes seconds and pip most of a minute. pip installs uv at the version of constraints.txt. If uv cannot be installed, or
fails, pip installs everything.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gates.subjects.peers import installer

PINS = Path(__file__).parents[1] / "constraints.txt"


UNREACHABLE = re.compile(  # errors of pip and uv for an unreachable index on several systems
    r"connection (?:broken|refused|error|reset)|failed to (?:connect|fetch|lookup)|could not connect|error sending request"
    r"|failed to resolve|name or service not known|name resolution|dns error|timed out|unreachable|proxy ?error",
    re.IGNORECASE,
)


NOWHERE = re.compile(r"satisfies the requirement (\S+) \(from versions: none\)")  # pip's only error without retries


def run(command: list[str], variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command and return its exit code and standard error."""
    done = subprocess.run(
        command, check=False, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def attempts() -> Iterator[tuple[int, str]]:
    """Try uv, which pip installs at its pinned version, then pip; yield exit code and errors of each."""
    pin = next(line for line in PINS.read_text(encoding="utf-8").splitlines() if line.startswith("uv=="))
    code, errors = run([sys.executable, *installer.PIP, "--quiet", "--no-deps", pin])
    if code == 0 and installer.uv():
        # Bytecode is compiled on first import, since all modules take half a minute and most are never imported.
        command = installer.install_command(Path(sys.executable), PINS, bytecode=False)
        command.insert(command.index("install") + 1, "--quiet")
        code, errors = run(command, installer.environment_variables())
        yield code, errors
    else:
        yield code or 1, errors
    print("uv could not install the packages: trying pip.", file=sys.stderr)
    yield run([sys.executable, *installer.PIP, "--quiet", "--requirement", str(PINS)])


def reason(errors: str) -> str:
    """Return one sentence with the reason of a failed installation."""
    remedy = f"check the network, or what pip is configured with ({sys.executable} -m pip config list), and repeat `make setup`"
    if UNREACHABLE.search(errors):
        return f"set-up needs the packages of {PINS.name}, but no package index answers: {remedy}."
    if match := NOWHERE.search(errors):
        return f"set-up needs {match[1]}, but no package index that pip knows has it: {remedy}."
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    error = next(
        (line for line in reversed(lines) if line.lower().startswith("error")), (lines or ["no reason given"])[-1]
    )
    return f"the packages of {PINS.name} cannot be installed: {error}"


def main() -> int:
    """Return 0 if every pinned package is installed; otherwise print the reason in one sentence."""
    errors = ""
    for code, errors in attempts():
        if code == 0:
            return 0
        if UNREACHABLE.search(errors):  # pip would fail too
            break
    print(reason(errors), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
