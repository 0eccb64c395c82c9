"""Fill .venv, whose interpreter runs this, with what constraints.txt pins: `make setup` calls it.

uv installs in seconds what takes pip most of a minute. It is itself installed by pip, at the version that constraints.txt
pins. Where it cannot be had, or fails, pip installs everything.
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


UNREACHABLE = re.compile(  # what pip and uv say of an index that does not answer, in the words of several systems
    r"connection (?:broken|refused|error|reset)|failed to (?:connect|fetch|lookup)|could not connect|error sending request"
    r"|failed to resolve|name or service not known|name resolution|dns error|timed out|unreachable|proxy ?error",
    re.IGNORECASE,
)


NOWHERE = re.compile(r"satisfies the requirement (\S+) \(from versions: none\)")  # pip without retries says no more


def run(command: list[str], variables: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a command and return its exit code and what it said of errors."""
    done = subprocess.run(
        command, check=False, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def attempts() -> Iterator[tuple[int, str]]:
    """Try in turn uv, which pip installs at its pinned version, and pip; yield the exit code and the words of each."""
    pin = next(line for line in PINS.read_text(encoding="utf-8").splitlines() if line.startswith("uv=="))
    code, words = run([sys.executable, *installer.PIP, "--quiet", "--no-deps", pin])
    if code == 0 and installer.uv():
        # Bytecode is left to the first import: most modules are never imported, and all of them take half a minute.
        command = installer.install_command(Path(sys.executable), PINS, bytecode=False)
        command.insert(command.index("install") + 1, "--quiet")
        code, words = run(command, installer.environment_variables())
        yield code, words
    else:
        yield code or 1, words
    print("uv could not install the packages: trying pip.", file=sys.stderr)
    yield run([sys.executable, *installer.PIP, "--quiet", "--requirement", str(PINS)])


def reason(words: str) -> str:
    """Return one sentence on what a failed installation said."""
    remedy = f"check the network, or what pip is configured with ({sys.executable} -m pip config list), and repeat `make setup`"
    if UNREACHABLE.search(words):
        return f"set-up needs the packages of {PINS.name}, but no package index answers: {remedy}."
    if found := NOWHERE.search(words):
        return f"set-up needs {found[1]}, but no package index that pip knows has it: {remedy}."
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    error = next(
        (line for line in reversed(lines) if line.lower().startswith("error")), (lines or ["no reason given"])[-1]
    )
    return f"the packages of {PINS.name} cannot be installed: {error}"


def main() -> int:
    """Return 0 once every pinned package is installed; otherwise print why not, in a sentence."""
    words = ""
    for code, words in attempts():
        if code == 0:
            return 0
        if UNREACHABLE.search(words):  # for pip too
            break
    print(reason(words), file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
