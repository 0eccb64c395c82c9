"""Install the one wheel of a folder; asv calls it for the kernels, since it takes no two wheels from one folder.

python tools/install_kernels.py FOLDER
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main(folder: Path) -> int:
    """Return pip's exit status."""
    (wheel,) = folder.glob("*.whl")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", str(wheel)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
