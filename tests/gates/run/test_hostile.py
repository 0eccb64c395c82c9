"""Subjects that misbehave in every way we know: each is a clear verdict, never a pass, never the judge's end."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from command_line import here
from doubles import make_gate

from gates.model import ConfigurationError, Subject, Verdict
from gates.run.execute import run
from gates.run.plan import Options, plan
from gates.subjects import catalogue
from gates.worker import process, watch

WRONG = "return {'y': 3.0 * x}"  # noise around a wrong answer must not hide that it is wrong
FORK = "import os, time\nif os.fork() == 0:\n    time.sleep({})\n    os._exit(0)\n"


def judged(subject: Subject, limit_s: float = 5.0, **options: Any) -> Verdict:
    gate = make_gate()
    cases = tuple(type(case)(case.name, case.make, quick=True, limit_s=limit_s) for case in gate.cases)
    (found,) = run(plan([make_gate(cases=cases)], [subject], quick=True), Options(**options))
    return found.verdict


def written(folder: Path, text: str | bytes) -> Subject:
    file = folder / "hostile.py"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return catalogue.from_file(str(file), None)


def doing(body: str, head: str = "") -> str:
    lines = "\n    ".join(body.splitlines())
    return f"import numpy as np\n{head}\ndef double(x):\n    {lines}\n\nOPS = {{'double': double}}\n"


UNUSABLE = {
    "syntax error": ("def (:", "hostile.py, line 1: .* cannot read it: invalid syntax: def .*; correct that line"),
    "syntax error below": ("x = 1\n\nif x:\nOPS = {}\n", "hostile.py, line 4: .* expected an indented block"),
    "not utf-8": (b"x = '\xff\xfe'\n", "hostile.py.*: .*utf-8.*; correct"),
    "null bytes": (b"x = 1\x00\n", "hostile.py.*: .*null bytes; correct"),
    "empty file": ("", "hostile.py must define OPS, a dict from the name of an op to a function, such as OPS = "),
    "OPS is no dict": ("x = 1\nOPS = ['double']\n", "hostile.py, line 2: OPS is a list, must be a dict"),
    "OPS holds no functions": ("OPS = {'double': 3}\n", "line 1: OPS.'double'. is a int, must be a function"),
    "OPS has no names": ("OPS = {3: print}\n", "line 1: OPS has the key 3, its keys must be names of ops"),
    "conventions of nothing": (doing(WRONG) + "CONVENTIONS = {'doubel': {}}\n", "line 7: .* OPS does not define"),
    "a convention as text": (doing(WRONG) + "CONVENTIONS = {'double': {'a': 'group'}}\n", "must be a tuple of the choices"),
    "conventions are no dict": (doing(WRONG) + "CONVENTIONS = 7\n", "line 7: CONVENTIONS is a int, must be a dict"),
    "versions are no dict": (doing(WRONG) + "VERSIONS = 7\n", "line 7: VERSIONS is a int, must be a dict"),
}  # fmt: skip
AT_IMPORT = {
    "OPS raises": ("class D(dict):\n    def items(self): raise KeyError('no')\nOPS = D()\n", "KeyError"),
    "a convention that is no value": (doing(WRONG) + "CONVENTIONS = {'double': {'a': (print,)}}\n", "does not cross"),
    "departures are no text": (doing(WRONG) + "DEPARTURES_DOCUMENTED = {'double': 3}\n", "must hold text"),
    "a syntax error elsewhere": ("compile('def (:', 'other.py', 'exec')", "SyntaxError"),
    "raises": ("1 / 0", "ZeroDivisionError"),
    "raises what is no Exception": ("class Odd(BaseException): pass\nraise Odd('odd')", "Odd: odd"),
    "raises what cannot be said": ("class Odd(Exception):\n    def __str__(self): raise self\nraise Odd", "its text raises"),
    "sys.exit(0)": ("import sys\nsys.exit(0)", "SystemExit: 0"),
    "os._exit(0)": ("import os\nos._exit(0)", "ended with status 0"),
    "kills itself": ("import os\nos.kill(os.getpid(), 9)", "killed by SIGKILL"),
    "closes everything": ("import os\nos.closerange(3, 64)", "ended with|closed its pipe|OSError"),
    "writes to every pipe": (
        "import os\nfor fd in range(1, 256):\n    try: os.write(fd, b'ready! ' * 9)\n    except OSError: pass",
        "must start with b'GATE'",
    ),
    "recurses": ("def f(): f()\nf()", "RecursionError"),
    "hangs": ("import time\ntime.sleep(60)", "no answer within 1"),
    "reads its input": ("input('name? ')", "EOFError"),
    "garbage, then dies": ("print('\\x1b[2J' + 'noise ' * 999)\nraise SystemExit(3)", "SystemExit: 3"),
}  # fmt: skip
IN_A_CALL = {
    "sys.exit(0)": ("import sys\nsys.exit(0)", "raised", "SystemExit: 0"),
    "os._exit(0)": ("import os\nos._exit(0)", "crashed", "ended with status 0"),
    "aborts": ("import os\nos.abort()", "crashed", "SIGABRT"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", "raised", "KeyboardInterrupt"),
    "GeneratorExit": ("raise GeneratorExit", "raised", "GeneratorExit"),
    "returns None": ("return None", "raised", "returned nothing, must be a dict"),
    "returns text": ("return 'y'", "raised", "str, must be a dict"),
    "returns nothing": ("return {}", "shape", "must have 'y'"),
    "another name": ("return {'z': 2 * x}", "shape", "must have 'y'"),
    "wrong shape": ("return {'y': x[:3]}", "shape", "must be float64[8] like x"),
    "one axis more": ("return {'y': (2 * x)[None]}", "shape", "must be float64[8]"),
    "wrong dtype": ("return {'y': (2 * x).astype('i8')}", "shape", "is int64[8], must be float64[8]"),
    "a list of text": ("return {'y': ['2'] * 8}", "shape", "must be float64[8]"),
    "ragged": ("return {'y': [[1.0], [1.0, 2.0]]}", "shape", "rows differ in length"),
    "nested dicts": ("return {'y': {'y': {'y': 1}}}", "shape", "must be float64[8]"),
    "deeper than Python": ("d = {}\nfor _ in range(90000): d = {'y': d}\nreturn {'y': d}", "raised", "RecursionError"),
    "objects": ("return {'y': np.array([object()] * 8)}", "raised", "does not cross the wire"),
    "complex": ("return {'y': x + 1j}", "raised", "does not cross the wire"),
    "a function": ("return {'y': print}", "raised", "does not cross the wire"),
    "reserved keys": ("return {'$array': 7}", "raised", "does not start with '$'"),
    "NaN": ("return {'y': x * np.nan}", "bound", "is nan, must be <="),
    "infinities": ("return {'y': x * np.inf}", "bound", "is inf, must be <="),
    "zeros": ("return {'y': 0 * x}", "bound", "is 1, must be <="),
    "huge array": ("return {'y': np.zeros(1 << 33, 'i1')}", "raised", "must be at most 4294967296"),
    "huge answer": ("return {'y': np.zeros(3 << 29, 'i1')}", "crashed", "must be at most 1073741824"),
    "mutates its input": ("x *= 2\nreturn {'y': x}", "raised", "changed its input x in place"),
    "keeps inputs": (
        "KEPT.append(x)\nreturn {'y': 2 * KEPT[0] + len(KEPT)}",
        "bound",
        "must be <=",
    ),
    "changes folder": ("import os\nos.chdir('/')\n" + WRONG, "bound", "must be <="),
    "closes its pipes": ("import os\nos.closerange(0, 64)\n" + WRONG, "crashed", "ended with status|closed its pipe"),
    "writes to its pipes": (
        "import os\nfor fd in range(1, 256):\n    try: os.write(fd, b'value' * 9)\n    except OSError: pass\n" + WRONG,
        "crashed",
        "must start with b'GATE'",
    ),
    "prints a lot": ("for _ in range(300): print('pass ' * 9999)\n" + WRONG, "bound", "must be <="),
    "signal handlers": (
        "import signal, time\nfor s in (2, 15): signal.signal(s, signal.SIG_IGN)\ntime.sleep(60)",
        "timeout",
        "no answer within 1 s (0.2 s, and 0.8 s more",
    ),
    "hangs in C": ("import re\nre.match('(a+)+b', 'a' * 64)", "timeout", "no answer within 1 s (0.2 s, and 0.8 s more"),
    "recurses": ("return double(x)", "raised", "RecursionError"),
    "needs stdin": ("return {'y': float(input())}", "raised", "EOFError"),
    "a daemon that holds the pipe": (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nos._exit(0)",
        "crashed",
        "ended with status 0",
    ),
    "answers twice": ("import os\nos.fork()\n" + WRONG, "bound|crashed", "must be <=|follow the frame"),
    "warnings are errors": ("import warnings\nwarnings.simplefilter('error')\nwarnings.warn('x')", "raised", "UserWarning"),
    "a thread that dies": ("import threading\nthreading.Thread(target=lambda: 1 / 0).start()\n" + WRONG, "bound", "must"),
    "replaces print and json": ("import json\njson.dumps = lambda *a, **k: 'pass'\n" + WRONG, "crashed", "no frame"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_cannot_be_judged_is_a_usage_error(tmp_path: Path, name: str) -> None:
    """One sentence names the file, the line and the remedy; nothing is graded."""
    text, words = UNUSABLE[name]
    with pytest.raises(ConfigurationError, match=words) as refused:
        judged(written(tmp_path, text))
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("name", AT_IMPORT)
def test_a_file_that_does_not_load_fails_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The verdict is `raises` by `start`, with words that name what is wrong."""
    monkeypatch.setattr(process, "START_LIMIT_S", 1.0 if name == "hangs" else 60.0)
    text, words = AT_IMPORT[name]
    verdict = judged(written(tmp_path, text))
    assert (verdict.status, verdict.cause) == ("raises", "start"), verdict
    assert re.search(words, verdict.reason), verdict.reason
    assert verdict.reason.isprintable()


class TestInACall:
    """A function that does not do what it says."""

    @pytest.mark.parametrize("name", IN_A_CALL)
    def test_it_fails_with_its_reason(self, tmp_path: Path, name: str) -> None:
        """A wrong answer is `wrong`, none is `raises` or `timeout`, with the cause and the words that say how."""
        body, cause, words = IN_A_CALL[name]
        limit = 0.2 if cause == "timeout" else 30.0
        verdict = judged(written(tmp_path, doing(body, head="KEPT = []")), limit_s=limit)
        grade = {"timeout": "timeout", "raised": "raises", "crashed": "raises"}.get(verdict.cause, "wrong")
        assert verdict.status == grade, verdict
        assert re.fullmatch(cause, verdict.cause), verdict
        assert re.search(words.replace("[", r"\[").replace("$", r"\$").replace("(0", r"\(0"), verdict.reason), (
            verdict.reason
        )

    def test_a_late_answer_is_not_taken_for_the_next(self, tmp_path: Path) -> None:
        """A forked child answers the first call again; asked twice, the subject has crashed, and never passes."""
        body = "import os, time\nif N.append(1) or len(N) == 1:\n    if os.fork() == 0: time.sleep(0.3)\nreturn {'y': 2 * x}"
        subject = written(tmp_path, doing(body, head="N = []"))

        def twice(t: Any) -> Any:
            for _ in range(9):
                got = t.got(make_gate().ops[0], **t.inputs)["y"]
                time.sleep(0.1)
            yield t.within("y", got, t.want(make_gate().ops[0], **t.inputs))

        (found,) = run(plan([make_gate(check=twice)], [subject], quick=True), Options())
        assert (found.verdict.status, found.verdict.cause) == ("raises", "crashed")
        # whichever comes first: the late answer alone, or behind the right one
        assert re.search("it answered call 1, must answer call|bytes follow the frame", found.verdict.reason)


class TestLimits:
    """Memory, processes, output: what runs away is ended, with all that it started."""

    def test_memory(self, tmp_path: Path) -> None:
        """A worker that takes more than its limit is ended, long before the machine is full."""
        body = "kept = []\nimport time\nwhile True:\n    kept.append(np.ones(1 << 21))\n    time.sleep(0.01)"
        subject = written(tmp_path, doing(body))
        limited = type(subject)(subject.name, subject.entry, subject.module, memory_limit=300 << 20)
        verdict = judged(limited, limit_s=60.0)
        assert (verdict.status, verdict.cause) == ("raises", "crashed")
        assert re.search(r"uses \d+ MiB, must be at most 300 \(--memory-limit\)", verdict.reason)

    def test_memory_of_children_counts(self, tmp_path: Path) -> None:
        child = "import time; kept = bytearray(400 << 20); kept[::4096] = b'x' * len(kept[::4096]); time.sleep(60)"
        body = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(60)"
        subject = written(tmp_path, doing(body))
        limited = type(subject)(subject.name, subject.entry, subject.module, memory_limit=300 << 20)
        assert "must be at most 300 (--memory-limit)" in judged(limited, limit_s=60.0).reason

    @pytest.mark.parametrize("verb", [["prove"], ["calibrate", "--seeds", "2", "--subject", "mine.py"]])
    def test_proofs_and_calibrations_are_watched_too(self, tmp_path: Path, verb: list[str]) -> None:
        """A subject above its memory limit fails the baseline of a proof and is a false positive of a calibration."""
        large = "import time\nfrom gates.subjects.numpy_baseline import subject as numpy\nkept = b'x' * (64 << 20)\nOPS = numpy.OPS\n"
        (tmp_path / "mine.py").write_text(f"{large}time.sleep(1)  # until a look is due\n")
        done = here(*verb, "kl.k1", "--memory-limit", "0.05", "--out", ".", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        (results,) = tmp_path.glob("*.jsonl")
        assert re.search(r"it uses \d+ MiB, must be at most 51 \(--memory-limit\)", results.read_text())

    def test_a_memory_error_is_an_exception(self, tmp_path: Path) -> None:
        """Where NumPy itself refuses, the subject has raised."""
        verdict = judged(written(tmp_path, doing("return {'y': np.ones((1 << 50,))}")))
        assert (verdict.cause, "MemoryError" in verdict.reason) == ("raised", True)

    def test_a_fork_bomb(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Too many processes are ended together."""
        monkeypatch.setattr(watch, "PROCESSES", 8)
        bomb = "import os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        time.sleep(60)\n        os._exit(0)\ntime.sleep(60)"
        verdict = judged(written(tmp_path, doing(bomb)), limit_s=60.0)
        assert (verdict.status, verdict.cause) == ("raises", "crashed")
        assert "processes, must be at most 8" in verdict.reason

    def test_children_that_leave_the_group_end_too(self, tmp_path: Path) -> None:
        """A child in a session of its own is remembered and killed with the worker."""
        note = tmp_path / "pid"
        child = f"import os; os.setsid(); open({str(note)!r}, 'w').write(str(os.getpid())); import time; time.sleep(90)"
        body = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {child!r}])\ntime.sleep(90)"
        assert judged(written(tmp_path, doing(body)), limit_s=0.6).cause == "timeout"
        pid = int(note.read_text())
        deadline = time.monotonic() + 10.0
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline, "the child outlived the judgement"
            time.sleep(0.05)

    def test_output_does_not_fill_the_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is printed beyond the limit is thrown away while the call runs."""
        monkeypatch.setattr(watch, "LOG_LIMIT", 1 << 20)
        body = "import os, time\nend = time.time() + 1.5\nwhile time.time() < end: os.write(1, b'flood ' * 999)\ntime.sleep(60)"
        subject = written(tmp_path, doing(body))
        running = process.Worker.start(subject, threads=1)
        outcome = running.call("double", {"x": 1.0}, limit_s=3.5)
        assert outcome.kind == "timeout"
        assert "its last words: flood" in outcome.error or "it wrote nothing to standard error" in outcome.error

    def test_the_log_is_cut(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """And goes on from its start, not from where the flood had come."""
        monkeypatch.setattr(watch, "LOG_LIMIT", 1000)
        log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.write(log, b"x" * 5000)
        looking = watch.Watch(os.getpid(), log, None, last=-1e9)
        assert looking.look() == ""
        os.write(log, b"after")
        assert (tmp_path / "log").read_bytes() == b"after"
        os.close(log)


class TestPlaces:
    """What `--subject` names is not there, or is no file."""

    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda p: None, "there is no such file"),
            (lambda p: p.mkdir(), "is a folder"),
            (lambda p: p.symlink_to(p), "a loop of links"),
            (lambda p: p.symlink_to("nowhere"), "there is no such file"),
            (os.mkfifo, "no regular file"),
        ],
        ids=["nothing", "folder", "loop", "dangling link", "pipe"],
    )
    def test_it_is_a_mistake_of_the_user(self, tmp_path: Path, make: Any, words: str) -> None:
        """One sentence, before anything starts."""
        make(tmp_path / "mine.py")
        with pytest.raises(ConfigurationError, match=words):
            catalogue.from_file(str(tmp_path / "mine.py"), None)

    def test_a_file_that_is_no_program(self, tmp_path: Path) -> None:
        (tmp_path / "mine.txt").write_text("x")
        with pytest.raises(ConfigurationError, match=r"executable \(chmod \+x\) that speaks"):
            catalogue.from_file(str(tmp_path / "mine.txt"), None)
        (tmp_path / "mine.txt").chmod(0o755)
        with pytest.raises(ConfigurationError, match="is a program by itself"):
            catalogue.from_file(str(tmp_path / "mine.txt"), "python3")


class TestInterpreters:
    """`--python` names something else than a Python with NumPy."""

    @pytest.mark.parametrize(
        ("script", "words"),
        [
            ("#!/bin/sh\nexit 0\n", "must be Python 3.10 or newer with NumPy: the process ended with status 0"),
            (f'#!/bin/sh\nshift\nexec {sys.executable} -I -S "$@"\n', "has no NumPy, which every Python subject needs"),
            ("#!/bin/sh\necho 'unknown option -I' >&2\nexit 2\n", "unknown option -I"),
        ],
        ids=["no Python", "no NumPy", "another program"],
    )  # fmt: skip
    def test_a_wrong_interpreter_is_reported(self, tmp_path: Path, script: str, words: str) -> None:
        """The subject fails to start, with what the interpreter must be."""
        python = tmp_path / "python"
        python.write_text(script)
        python.chmod(0o755)
        file = written(tmp_path, doing(WRONG)).entry
        verdict = judged(catalogue.from_file(str(file), str(python)))
        assert (verdict.status, verdict.cause) == ("raises", "start")
        assert words in verdict.reason

    def test_an_old_python_is_told_its_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The worker's file refuses before it imports anything that is too new."""
        code = (
            f"import sys; sys.version_info = (3, 9); sys.argv = ['w']; exec(open({process.worker.__file__!r}).read())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "must be 3.10 or newer" in done.stderr

    def test_a_file_that_is_not_executable(self, tmp_path: Path) -> None:
        (tmp_path / "mine.py").write_text(doing(WRONG))
        done = here("check", "--subject", "./mine.py", "--python", "./mine.py", cwd=tmp_path)
        assert (done.returncode, "is not executable" in done.stderr) == (2, True)


@pytest.mark.parametrize("text", ["import os\nos._exit(0)", "print('PASS' * 9)\nimport sys\nsys.exit(0)"])
def test_the_command_line_never_calls_it_a_pass(tmp_path: Path, text: str) -> None:
    """Exit code 1, a count without passes, no traceback."""
    (tmp_path / "mine.py").write_text(text)
    done = here("check", "kl.k1", "--quick", "--subject", "./mine.py", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "exit 1: 1 raises"
    assert "Traceback" not in done.stdout + done.stderr


def test_there_are_more_than_forty() -> None:
    assert len(UNUSABLE) + len(AT_IMPORT) + len(IN_A_CALL) >= 60
