"""Fill .venv, whose interpreter runs this, with what constraints.txt pins: `make setup` calls it.

uv installs in seconds what takes pip most of a minute. It is itself installed by pip, at the version that constraints.txt
pins. Where it cannot be had, or fails, pip installs everything.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gates.subjects.peers import installer

PINS = Path(__file__).parents[1] / "constraints.txt"


def install_uv() -> bool:
    """Install uv at its pinned version; say whether that worked."""
    pin = next(line for line in PINS.read_text(encoding="utf-8").splitlines() if line.startswith("uv=="))
    command = [sys.executable, *installer.PIP, "--quiet", "--no-deps", pin]
    return subprocess.run(command, check=False).returncode == 0


def main() -> int:
    """Return 0 once every pinned package is installed."""
    if install_uv() and installer.uv():
        # Bytecode is left to the first import: most modules are never imported, and all of them take half a minute.
        command = installer.install_command(Path(sys.executable), PINS, bytecode=False)
        command.insert(command.index("install") + 1, "--quiet")
        if subprocess.run(command, check=False, env=installer.environment_variables()).returncode == 0:
            return 0
    print("uv could not install the packages: trying pip.", file=sys.stderr)
    command = [sys.executable, *installer.PIP, "--quiet", "--requirement", str(PINS)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
