"""Draw docs/report.png, the top of the HTML page of the recorded runs, with a headless Chromium; `make report` calls it.

    .venv/bin/python tools/report_picture.py

The picture has a digest of its page, so it is redrawn only if the page changed. Without Chromium, and in CI, which has other
fonts, it is unchanged, and a line says whether it is current.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "report.png"
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SIZE = "1180,900"  # columns and rows of the window
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--force-device-scale-factor=1")
KEY = "page"  # key of the digest in the picture's metadata


def page(folder: Path) -> Path:
    """Write the page of the recorded runs."""
    runs = sorted(str(path) for path in (ROOT / "results" / "gates").glob("*.jsonl*"))
    file = folder / "report.html"
    command = [sys.executable, "-m", "gates", "report", *runs, "--format", "html", "--out", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return file


def drawn_of() -> str:
    """Return the digest of the picture's page."""
    if not PICTURE.exists():
        return ""
    with Image.open(PICTURE) as picture:
        return str(picture.info.get(KEY, ""))


def draw(program: str, file: Path, digest: str) -> None:
    """Replace the picture, in 128 colours, which suffice for text and tables."""
    raw = file.with_suffix(".png")
    command = [program, *FLAGS, f"--window-size={SIZE}", f"--screenshot={raw}", file.as_uri()]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    kept = PngInfo()
    kept.add_text(KEY, digest)
    draft = PICTURE.with_suffix(".part")
    with Image.open(raw) as picture:
        picture.convert("RGB").quantize(128).save(draft, format="PNG", optimize=True, pnginfo=kept)
    draft.replace(PICTURE)


def main() -> None:
    """Draw the picture if its page changed."""
    with tempfile.TemporaryDirectory() as folder:
        file = page(Path(folder))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if drawn_of() == digest:
            print("docs/report.png is of today's page")
        elif PROGRAM is None or os.environ.get("CI"):
            print(
                "docs/report.png is of an older page; outside CI, with Chromium (Debian's package), it is drawn again"
            )
        else:
            draw(PROGRAM, file, digest)
            print("wrote docs/report.png")


if __name__ == "__main__":
    main()
