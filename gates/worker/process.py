"""The judge's end of the protocol: start a worker, call it within a time limit, and end its whole process group."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates.errors import FaultError, scarce, sentence
from gates.model import RECORDED, ConfigurationError, Outcome, OutcomeKind, Recipe, Subject, Wire
from gates.provided import Provided
from gates.worker import channels, frames, handshake, worker
from gates.worker.handshake import Hello as Hello  # noqa: PLC0414  of `Worker.hello`
from gates.worker.recorded import RecordedCalls
from gates.worker.watch import MARK, TICK_S, Watch

PROTOCOL = 1  # version of docs/protocol.md
START_LIMIT_S = 120.0  # a cold import of a framework on a busy machine takes tens of seconds
ANSWER_LIMIT = 1 << 30  # bytes of arrays in one answer: three times the recorded logits of a batch
LOG_TAIL = 600  # characters of a dead worker's output that are shown
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
HERE = Path(worker.__file__).resolve().parents[2]  # the folder of this checkout, or of the installed packages
FOLDERS = (HERE, HERE / "reference")  # of packages; the second in a checkout alone
RECORDER = HERE / "gates" / "xray" / "recorder"  # of `gates xray`
PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR", "GATES_CACHE_DIR", "XDG_CACHE_HOME", "HF_HOME", "CC", "CXX")


class WorkerError(Exception):
    """The worker did not start, or its answer breaks the protocol."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind  # absent · broken · scarce · crashed · timeout · limit


@dataclass(slots=True)
class Worker:
    """A running subject, made by `start`. The caller must call `close`."""

    subject: Subject
    process: subprocess.Popen[bytes]
    to_worker: int
    from_worker: int
    log: Any
    token: str
    hello: Hello = field(default_factory=lambda: Hello({}, {}, {}))
    calls: int = 0
    answered: set[str] = field(default_factory=set)  # the ops that have returned a value
    recorded: RecordedCalls | None = None  # in others of the same; None: this is such a worker
    patched_here: int = 0  # calls of a mutant's patch in this worker
    watch: Watch = field(init=False)
    _closing: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.watch = Watch(self.process.pid, self.log.fileno(), self.subject.memory_limit, self.token)

    @classmethod
    def start(
        cls,
        subject: Subject,
        *,
        threads: int,
        mutant: Mapping[str, str] | None = None,
        recorded: Mapping[str, Wire] | None = None,
    ) -> Worker:
        """Start the subject's interpreter and wait for its handshake.

        Args:
            subject: whom to start.
            threads: of its libraries.
            mutant: a mutation to apply.
            recorded: what the recorder of `gates xray` is asked, such as its folder; None: it is not on the path.
        """
        if subject.why_absent:
            raise WorkerError("absent", subject.why_absent)
        log, (worker_in, to_worker), (from_worker, worker_out) = channels.opened(subject.name)
        if subject.is_program:  # another language: frames on standard input and output
            command = [str(subject.entry)]
        else:
            script = str(Path(worker.__file__).resolve())
            pipes = ["--read", str(worker_in), "--write", str(worker_out)]
            alone = "-IB" if sys.dont_write_bytecode else "-I"
            command = [subject.python or sys.executable, alone, script, *pipes]
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment |= dict.fromkeys(THREAD_VARIABLES, str(threads))
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONHASHSEED": "0"}
        environment |= {**subject.environment, MARK: (token := secrets.token_hex(16))}
        try:
            process = subprocess.Popen(
                command,
                stdin=worker_in if subject.is_program else subprocess.DEVNULL,
                stdout=worker_out if subject.is_program else log,
                stderr=log,
                pass_fds=() if subject.is_program else (worker_in, worker_out),
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            for fd in (to_worker, from_worker):
                os.close(fd)
            log.close()
            if scarce(error) or error.errno == errno.EAGAIN:
                raise FaultError(sentence(f"cannot start {subject.name}", error)) from None
            raise WorkerError("absent", f"cannot start {command[0]}: {_why_not(error, subject)}") from None
        finally:
            os.close(worker_in)
            os.close(worker_out)
        os.set_blocking(to_worker, False)
        for fd in (to_worker, from_worker):
            channels.widen(fd)
        self = cls(subject, process, to_worker, from_worker, log, token)
        if recorded is None:
            self.recorded = RecordedCalls(
                lambda asked: cls.start(subject, threads=threads, mutant=mutant, recorded=asked)
            )
        try:
            self._greet(mutant, recorded)
        except BaseException:
            self.close()
            raise
        return self

    def _greet(self, mutant: Mapping[str, str] | None, recorded: Mapping[str, Wire] | None) -> None:
        start = {
            "entry": str(self.subject.entry),
            "module": self.subject.module,
            "preload": list(self.subject.preload),
            "settings": dict(self.subject.settings),
            "mutant": dict(mutant) if mutant else None,
        }
        if recorded is not None:
            start["recorder"] = {"path": str(RECORDER), "asked": dict(recorded)}
        try:
            hello = self._exchange({"protocol": PROTOCOL, **start}, START_LIMIT_S)
        except WorkerError as error:
            if self.subject.python and error.kind == "crashed":
                message = (
                    f"{self.subject.python} did not run the worker; it must be Python 3.10 or newer with NumPy: {error}"
                )
                raise WorkerError("crashed", message) from None
            raise
        if hello.get("kind") == "usage":
            raise ConfigurationError(str(hello.get("error") or f"{self.subject.entry} cannot be judged as it is"))
        if hello.get("kind") != "ready":
            kind = str(hello.get("kind")) if hello.get("kind") in {"absent", "scarce"} else "broken"
            raise WorkerError(kind, str(hello.get("error") or f"it answered {_short(hello)}, must be ready"))
        if self.subject.module.startswith("gates.") and not self.subject.is_program:
            _same_checkout(self.subject, hello.get("code", {}))
        try:
            self.hello = handshake.parsed(hello)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WorkerError("broken", f"its first answer is not what docs/protocol.md says: {error!r}") from None

    def call(
        self,
        op: str,
        inputs: Mapping[str, Wire | Recipe],
        *,
        limit_s: float,
        layout: Mapping[str, str] | None = None,
        first_more_s: float = 0.0,
        remedy: str = "",
    ) -> Outcome:
        """Run one op. A crash or a timeout ends this worker and is the outcome; a recorded op has a worker of its own.

        Args:
            op: its name.
            inputs: its arguments.
            limit_s: the seconds in which it must answer.
            layout: the memory layout of arrays that have another one than their own.
            first_more_s: the seconds more that it has until it has answered once, because it may compile.
            remedy: what sets another limit, for the message of a timeout.
        """
        if op in RECORDED and self.recorded is not None:
            return self.recorded.call(op, inputs, limit_s=limit_s, remedy=remedy, wanted=lambda: self.alive)
        omitted = self.omitted(op, inputs)
        plain = {
            name: dict(value.spec) if isinstance(value, Recipe) else value
            for name, value in inputs.items()
            if name not in omitted
        }
        start = time.monotonic()
        self.calls += 1
        request = {"id": self.calls, "op": op, "inputs": plain, "layout": dict(layout or {})}
        try:
            more = 0.0 if op in self.answered else first_more_s
            why = f" ({limit_s:g} s, and {more:g} s more for a first call, which may compile)" if more else ""
            outcome = self._outcome(self._exchange(request, limit_s + more, why + remedy), start)
        except WorkerError as error:
            self.close()
            ended: OutcomeKind = "timeout" if error.kind == "timeout" else "crashed"
            return Outcome(ended, error=str(error), seconds=time.monotonic() - start)
        if outcome.kind == "value":
            self.answered.add(op)
        return outcome

    def omitted(self, op: str, inputs: Mapping[str, Wire | Recipe]) -> tuple[str, ...]:
        """Return the inputs that are not passed to an op, because its function has no argument for them; see `Provided`."""
        provided = self.hello.provides.get(op) or Provided(op)
        return tuple(name for name in inputs if name in provided.implied or provided.omits(name, inputs))

    def _outcome(self, answer: Mapping[str, Any], start: float) -> Outcome:
        """Return the outcome in an answer; an answer to another call, such as a forked child's, ends the worker."""
        if answer.get("id") != self.calls:
            raise WorkerError("crashed", f"it answered call {answer.get('id')!r}, must answer call {self.calls}")
        kind, value, seconds = answer.get("kind"), answer.get("value"), answer.get("seconds")
        patched = answer.get("patched_calls", 0)
        self.patched_here = patched if isinstance(patched, int) else 0
        if kind == "value":
            if not isinstance(value, dict) or not isinstance(seconds, int | float):
                raise WorkerError("crashed", f"the answer is no value with seconds: {_short(answer)}")
            return Outcome("value", value, seconds=float(seconds))
        if kind not in {"raised", "unsupported"}:
            raise WorkerError("crashed", f"the answer is of kind {kind!r}, must be value, raised or unsupported")
        return Outcome(
            "unsupported" if kind == "unsupported" else "raised",
            error=str(answer.get("error"))[: frames.ERROR_LIMIT],
            seconds=time.monotonic() - start,
        )

    @property
    def patched_calls(self) -> int:
        """How often a mutant's patch was called, in recorded calls too."""
        return self.patched_here + (self.recorded.patched_calls if self.recorded else 0)

    @property
    def alive(self) -> bool:
        """Whether the worker can take another call."""
        return not self.log.closed and self.process.poll() is None

    def close(self) -> None:
        """End the process group and every process that left it, and release the pipes.

        May be called by several threads at once: one in the middle of a call sees the pipe break and calls it too.
        """
        if self.recorded is not None:
            self.recorded.close()
        with self._closing:
            if self.log.closed:
                return
            self.watch.end_descendants()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.watch.end()
            for fd in (self.to_worker, self.from_worker):
                os.close(fd)
            self.log.close()

    def _exchange(self, tree: Any, limit_s: float, remark: str = "") -> dict[str, Any]:
        """Write a frame while reading the answer, so that two full pipes cannot deadlock."""
        parts = [memoryview(part).cast("B") for part in frames.encode(tree)]
        inbox = _Inbox()
        deadline = time.monotonic() + limit_s
        with selectors.PollSelector() as ready:  # epoll's set-up does not pay off for two pipes
            ready.register(self.from_worker, selectors.EVENT_READ)
            if self._push(parts):
                ready.register(self.to_worker, selectors.EVENT_WRITE)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise WorkerError("timeout", f"no answer within {limit_s:g} s{remark}; {self._last_words()}")
                events = ready.select(min(left, TICK_S))
                if reason := self.watch.look():
                    raise WorkerError("limit", f"{reason}; {self._last_words()}")
                if not events and self.process.poll() is not None:  # a surviving child holds the pipe open
                    raise WorkerError("crashed", self._how_it_ended())
                for key, _ in events:
                    if key.fd == self.to_worker:
                        if not self._push(parts):
                            ready.unregister(self.to_worker)
                    elif (answer := self._pull(inbox)) is not None:
                        return answer

    def _push(self, parts: list[memoryview]) -> bool:
        """Write as much as the pipe accepts, and return whether anything is left."""
        try:
            frames.drop(parts, os.writev(self.to_worker, frames.batch(parts)))
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False  # reading reports the reason
        return bool(parts)

    def _pull(self, inbox: _Inbox) -> dict[str, Any] | None:
        data = os.read(self.from_worker, channels.CHUNK)
        if not data:
            raise WorkerError("crashed", self._how_it_ended())
        try:
            answer = inbox.feed(data)
        except (ValueError, KeyError, IndexError, TypeError, RecursionError, MemoryError) as error:
            raise WorkerError("crashed", f"the answer is no frame: {error}; {self._last_words()}") from None
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
        if code is None:
            return f"the process closed its pipe and went on; {self._last_words()}"
        return f"the process ended with status {code}; {self._last_words()}"

    def _last_words(self) -> str:
        fd = self.log.fileno()
        tail = os.pread(fd, LOG_TAIL, max(0, os.fstat(fd).st_size - LOG_TAIL)).decode(errors="replace")
        text = " ".join("".join(c if c.isprintable() else " " for c in tail).split())  # without terminal escapes
        return f"its last words: {text}" if text else "it wrote nothing to standard error"


def _same_checkout(subject: Subject, code: Mapping[str, str]) -> None:
    """Refuse a shipped subject that imported packages of another checkout, whose code would be judged instead.

    Raises:
        ConfigurationError: the subject's interpreter imports `gates` or `gates_reference` from another folder than this one.
    """
    for package, folder in code.items():
        if Path(folder) not in [place / package for place in FOLDERS]:
            raise ConfigurationError(
                f"subject {subject.name}: its interpreter {subject.python or sys.executable} imports {package!r} from "
                f"{folder}, but the judge runs from {HERE}; judge and subject must be of one checkout: "
                f"install this one there (pip install -e {HERE}), or run the `gates` command of that interpreter"
            )


def _short(answer: Mapping[str, Any]) -> str:
    return f"{ {key: type(value).__name__ for key, value in answer.items()} }"


def _why_not(error: OSError, subject: Subject) -> str:
    if error.errno == errno.ENOEXEC:
        return "it is no program of this machine and does not start with #!"
    if error.errno == errno.ENOENT and subject.is_program:
        return "the interpreter that its first line names is not here"
    return str(error.strerror)


@dataclass(slots=True)
class _Inbox:
    """The bytes of one frame received so far."""

    data: bytearray = field(default_factory=bytearray)
    header: dict[str, Any] | None = None
    start: int = 0
    total: int = frames.PREFIX.size

    def feed(self, data: bytes) -> Any | None:
        self.data += data
        if self.header is None and len(self.data) >= frames.PREFIX.size:
            self.start = frames.PREFIX.size + frames.header_size(bytes(self.data[: frames.PREFIX.size]))
            self.total = self.start
            if len(self.data) >= self.start:
                self.header, sizes = frames.parse_header(self.data[frames.PREFIX.size : self.start])
                if sum(sizes) > ANSWER_LIMIT:
                    raise frames.FrameError(f"its arrays have {sum(sizes)} bytes, must be at most {ANSWER_LIMIT}")
                self.total = self.start + sum(sizes)
        if self.header is None or len(self.data) < self.total:
            return None
        if len(self.data) > self.total:
            raise frames.FrameError(f"{len(self.data) - self.total} bytes follow the frame")
        return frames.decode(self.header, memoryview(self.data)[self.start : self.total])
