"""Draw docs/xray.png, the top of the page of an X-ray of TRL's DPO trainer, with a headless Chromium.

.venv/bin/python tools/xray_picture.py

It needs TRL's environment (`gates peers sync trl`) and half a minute; nothing calls it, since the page changes seldom.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import report_picture
import xray_proof
from PIL import Image

from gates.subjects.peers import environments
from gates_reference import tiny

PICTURE = report_picture.ROOT / "docs" / "xray.png"
SIZE = "1000,1260"  # columns and rows of the window: rows that are pushed up, and rows that are pushed down


def main() -> None:
    """Draw the picture.

    Raises:
        SystemExit: Chromium or TRL's environment is missing.
    """
    environment = environments.environment("trl")
    if report_picture.PROGRAM is None or not environment.ready:
        raise SystemExit("needs Chromium (Debian's package) and TRL's environment: `gates peers sync trl`")
    with tempfile.TemporaryDirectory() as folder:
        page, raw = Path(folder) / "xray.html", Path(folder) / "xray.png"
        script = [str(environment.python), str(xray_proof.EXAMPLES / "trl_trainers.py"), "dpo", str(tiny.build({}))]
        command = [sys.executable, "-m", "gates", "xray", "--out", str(page), "--", *script, f"{folder}/out"]
        subprocess.run(command, check=True, timeout=600, capture_output=True)
        window = [f"--window-size={SIZE}", f"--screenshot={raw}", page.as_uri()]
        subprocess.run(
            [report_picture.PROGRAM, *report_picture.FLAGS, *window], check=True, timeout=120, capture_output=True
        )
        with Image.open(raw) as picture:
            picture.convert("RGB").quantize(128).save(PICTURE, format="PNG", optimize=True)
    print(f"wrote docs/xray.png, {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
