"""A headless Chromium on a pipe (the DevTools protocol, one JSON message up to each zero byte): no other library."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gates.report.html import render_html

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
)
KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


class Browser:
    """One page."""

    def __init__(self, to: int, of: int) -> None:
        self._to, self._of, self._rest = to, of, b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method and return its result; events that come meanwhile are kept."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._of, 1 << 20)
            assert data, "chromium ended"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def open(self, file: Path, *, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        """Load a file and wait until it has loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.send("Page.navigate", url=file.resolve().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._next()

    def value(self, expression: str, *, wait: bool = False) -> Any:
        """Return what an expression of the page is, or will be where it is a promise to wait for."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=wait)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Press a key as a keyboard does."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **text)

    def shoot(self, file: Path) -> None:
        """Save what is seen as a PNG."""
        file.write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png")["data"]))


def shown(chromium: Browser, paths: list[Path], folder: Path, **how: Any) -> Browser:
    """Open the page of these files."""
    (folder / "page.html").write_text(render_html(paths), encoding="utf-8")
    chromium.open(folder / "page.html", **how)
    return chromium


def wrong(chromium: Browser) -> list[Any]:
    """Return what the console says, exceptions and broken policies included, and requests beside the file itself."""
    chromium.value("1")
    said = [e["params"] for e in chromium.events if e["method"] in {"Log.entryAdded", "Runtime.exceptionThrown"}]
    asked = [e["params"]["request"]["url"] for e in chromium.events if e["method"] == "Network.requestWillBeSent"]
    return [*said, *asked[1:]]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Start Chromium with a fresh profile; it ends with the block."""
    assert PROGRAM
    to_read, to_write = os.pipe()
    of_read, of_write = os.pipe()
    # Chromium reads from descriptor 3 and writes to 4: the shell puts the pipes there
    command = f'exec "$@" 3<&{to_read} 4>&{of_write}'
    flags = [*FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe", "about:blank"]
    process = subprocess.Popen(
        ["nice", "bash", "-c", command, "bash", PROGRAM, *flags],
        pass_fds=(to_read, of_write),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(to_read)
    os.close(of_write)
    try:
        yield Browser(to_write, of_read)
    finally:
        os.close(to_write)
        os.close(of_read)
        process.terminate()
        process.wait(timeout=20)
