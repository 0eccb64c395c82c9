"""The judge's end of the pipes: starts a worker, calls it within a limit, and ends its whole process group."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates import worker
from gates.model import Outcome, OutcomeKind, Provided, Recipe, Subject, Wire

START_LIMIT_S = 120.0  # a cold import of a framework on a busy machine takes tens of seconds
CHUNK = 1 << 20  # bytes per read: the largest pipe that Linux grants without privilege
LOG_TAIL = 600  # characters of a dead worker's last words
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "GATES_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME", "CC", "CXX")


class WorkerError(Exception):
    """The worker did not start or did not answer as a worker does."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind  # absent · broken · crashed · timeout


@dataclass(frozen=True, slots=True)
class Hello:
    """What a subject says of itself."""

    provides: Mapping[str, Provided]
    documented: Mapping[str, str]
    versions: Mapping[str, str]


@dataclass(slots=True)
class Worker:
    """A running subject. Use `start`; call `close` in the end, whatever happened."""

    subject: Subject
    process: subprocess.Popen[bytes]
    to_worker: int
    from_worker: int
    log: Any
    hello: Hello = field(default_factory=lambda: Hello({}, {}, {}))
    patched_calls: int = 0

    @classmethod
    def start(cls, subject: Subject, *, threads: int, mutant: Mapping[str, str] | None = None) -> Worker:
        """Start the subject's interpreter and wait for its handshake."""
        if subject.why_absent:
            raise WorkerError("absent", subject.why_absent)
        theirs_in, to_worker = os.pipe()
        from_worker, theirs_out = os.pipe()
        log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the worker
        script = str(Path(worker.__file__).resolve())
        command = [subject.python or sys.executable, "-I", script, "--read", str(theirs_in), "--write", str(theirs_out)]
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
        environment |= subject.environment
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs_in, theirs_out),
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            for fd in (to_worker, from_worker):
                os.close(fd)
            log.close()
            raise WorkerError("absent", f"cannot start {command[0]}: {error.strerror}") from None
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        os.set_blocking(to_worker, False)
        for fd in (to_worker, from_worker):
            _widen(fd)
        self = cls(subject, process, to_worker, from_worker, log)
        try:
            self._greet(mutant)
        except BaseException:
            self.close()
            raise
        return self

    def _greet(self, mutant: Mapping[str, str] | None) -> None:
        start = {
            "entry": str(self.subject.entry),
            "module": self.subject.module,
            "preload": list(self.subject.preload),
            "settings": dict(self.subject.settings),
            "mutant": dict(mutant) if mutant else None,
        }
        hello = self._exchange(start, START_LIMIT_S)
        if hello.get("kind") != "ready":
            raise WorkerError(str(hello.get("kind")), str(hello.get("error")))
        provides = {
            op: Provided(op, {name: tuple(values) for name, values in conventions.items()})
            for op, conventions in hello["provides"].items()
        }
        self.hello = Hello(provides, hello["documented"], hello["versions"])

    def call(
        self, op: str, inputs: Mapping[str, Wire | Recipe], *, limit_s: float, layout: Mapping[str, str] | None = None
    ) -> Outcome:
        """Run one op. A crash or a hang ends this worker and is told as such."""
        plain = {name: dict(v.spec) if isinstance(v, Recipe) else v for name, v in inputs.items()}
        start = time.monotonic()
        try:
            answer = self._exchange({"op": op, "inputs": plain, "layout": dict(layout or {})}, limit_s)
        except WorkerError as error:
            self.close()
            ended: OutcomeKind = "timeout" if error.kind == "timeout" else "crashed"
            return Outcome(ended, error=str(error), seconds=time.monotonic() - start)
        self.patched_calls = int(answer.get("patched_calls", 0))
        if answer["kind"] == "value":
            return Outcome("value", answer["value"], seconds=float(answer["seconds"]))
        kind: OutcomeKind = "unsupported" if answer["kind"] == "unsupported" else "raised"
        return Outcome(kind, error=str(answer["error"]), seconds=time.monotonic() - start)

    @property
    def alive(self) -> bool:
        """Whether the worker can take another call."""
        return not self.log.closed and self.process.poll() is None

    def close(self) -> None:
        """End the whole process group and release the pipes."""
        if self.log.closed:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for fd in (self.to_worker, self.from_worker):
            os.close(fd)
        self.log.close()

    def _exchange(self, tree: Any, limit_s: float) -> dict[str, Any]:
        """Write a frame while reading the answer, so that two full pipes never wait for each other."""
        parts = [memoryview(part).cast("B") for part in worker.encode(tree)]
        inbox = _Inbox()
        deadline = time.monotonic() + limit_s
        with selectors.DefaultSelector() as ready:
            ready.register(self.from_worker, selectors.EVENT_READ)
            ready.register(self.to_worker, selectors.EVENT_WRITE)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WorkerError("timeout", f"no answer within {limit_s:g} s; {self._last_words()}")
                for key, _ in ready.select(left):
                    if key.fd == self.to_worker:
                        if not self._push(parts):
                            ready.unregister(self.to_worker)
                    elif (answer := self._pull(inbox)) is not None:
                        return answer

    def _push(self, parts: list[memoryview]) -> bool:
        try:
            parts[0] = parts[0][os.write(self.to_worker, parts[0][:CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False  # the read end will tell why
        while parts and not parts[0]:
            parts.pop(0)
        return bool(parts)

    def _pull(self, inbox: _Inbox) -> dict[str, Any] | None:
        data = os.read(self.from_worker, CHUNK)
        if not data:
            raise WorkerError("crashed", self._how_it_ended())
        try:
            answer = inbox.feed(data)
        except worker.FrameError as error:
            raise WorkerError("crashed", f"the answer is no frame: {error}") from None
        if answer is not None and not isinstance(answer, dict):
            raise WorkerError("crashed", "the answer is no object")
        return answer

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5.0)
        code = self.process.returncode
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            memory = ", possibly out of memory" if name == "SIGKILL" else ""
            return f"the process was killed by {name}{memory}; {self._last_words()}"
        return f"the process ended with status {code}; {self._last_words()}"

    def _last_words(self) -> str:
        size = self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, size - LOG_TAIL))
        words = " ".join(self.log.read().decode(errors="replace").split())
        return f"its last words: {words}" if words else "it said nothing"


def _widen(pipe: int) -> None:
    """Let a pipe hold a whole chunk where the system allows it: recorded logits are tens of megabytes."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # the user's quota of pipe memory is spent: slower, not wrong
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK)


@dataclass(slots=True)
class _Inbox:
    """Bytes of one frame as they come in."""

    data: bytearray = field(default_factory=bytearray)
    header: dict[str, Any] | None = None
    start: int = 0
    total: int = worker.PREFIX.size

    def feed(self, data: bytes) -> Any | None:
        self.data += data
        if self.header is None and len(self.data) >= worker.PREFIX.size:
            self.start = worker.PREFIX.size + worker.header_size(bytes(self.data[: worker.PREFIX.size]))
            self.total = self.start
            if len(self.data) >= self.start:
                self.header, sizes = worker.parse_header(self.data[worker.PREFIX.size : self.start])
                self.total = self.start + sum(sizes)
        if self.header is None or len(self.data) < self.total:
            return None
        if len(self.data) > self.total:
            raise worker.FrameError(f"{len(self.data) - self.total} bytes follow the frame")
        return worker.decode(self.header, memoryview(self.data)[self.start : self.total])
