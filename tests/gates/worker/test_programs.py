"""Programs as subjects: the example in Perl, the protocol's page, and programs that break the protocol."""

import json
import re
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import here

from gates.subjects import catalogue
from gates.worker import frames, process
from gates.worker.process import Worker, WorkerError

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "protocol" / "subject.pl"
PAGE = (ROOT / "docs" / "protocol.md").read_text()
READY = {"kind": "ready", "provides": {"double": {}}}
ANSWER = {"id": 1, "kind": "value", "value": {"y": 2}, "seconds": 0}
HELPERS = f"""#!{sys.executable}
import json, os, struct, sys, time
def take(n):
    data = b""
    while len(data) < n:
        more = os.read(0, n - len(data))
        if not more: sys.exit(0)
        data += more
    return data
def receive():
    magic, size = struct.unpack("<4sI", take(8))
    header = json.loads(take(size))
    for b in header["buffers"]:
        take(8 * int(b["shape"][0]))
    return header["body"]
def frame(body, buffers=()):
    header = json.dumps({{"body": body, "buffers": list(buffers)}}).encode()
    return struct.pack("<4sI", b"GATE", len(header)) + header
def say(data):
    os.write(1, data)
receive()
"""


def program(folder: Path, body: str) -> Path:
    file = folder / "talker"
    file.write_text(HELPERS + body)
    file.chmod(0o755)
    return file


@pytest.mark.skipif(not shutil.which("perl"), reason="there is no Perl here, in which the example is written")
class TestExample:
    """The example in Perl."""

    def test_it_passes_its_gates(self, tmp_path: Path) -> None:
        """All three estimators pass; other ops are unsupported."""
        done = here("check", "kl.k1", "kl.k2", "kl.k3", "--subject", str(EXAMPLE), cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "exit 0: all 3 correct"
        assert re.search(r"correct +token_kl\[k1\] · token_kl\[k2\] · token_kl\[k3\]", done.stdout)

    def test_a_mistake_in_it_is_caught(self, tmp_path: Path) -> None:
        """Without the sign, k1 fails, and the counterexample is one token."""
        wrong = tmp_path / "wrong"
        wrong.write_text(EXAMPLE.read_text().replace("? -$d :", "? $d :"))
        wrong.chmod(0o755)
        done = here("check", "kl.k1", "--quick", "--subject", "./wrong", cwd=tmp_path)
        assert done.returncode == 1
        assert re.search(r"smallest input \(\d+ → [23] numbers\)", done.stdout)

    def test_it_has_sixty_lines(self) -> None:
        assert len(EXAMPLE.read_text().splitlines()) <= 60
        assert "a whole subject in 60 lines" in PAGE


class TestPage:
    """docs/protocol.md describes both ends."""

    def test_constants_are_current(self) -> None:
        """Limits, dtypes, magic and version are those of the code."""
        assert all(f"`{dtype}`" in PAGE for dtype in frames.DTYPES)
        assert f"({frames.HEADER_LIMIT})" in PAGE
        assert frames.PAYLOAD_LIMIT == 4 << 30
        assert "at most 4 GiB, those of an answer at most 1 GiB" in PAGE
        assert process.ANSWER_LIMIT == 1 << 30
        assert f"`{frames.MAGIC.decode()}`" in PAGE
        assert f"This is protocol {process.PROTOCOL}." in PAGE
        assert f"It has {process.START_LIMIT_S:.0f} s" in PAGE

    def test_requests_have_the_documented_keys(self, tmp_path: Path) -> None:
        """The keys of the start and of a call, as received by a program."""
        note = tmp_path / "seen"
        file = program(tmp_path, f"say(frame({READY!r}))\nopen({str(note)!r}, 'w').write(json.dumps(receive()))\n")
        running = Worker.start(catalogue.from_file(str(file), None), threads=1)
        running.call("double", {"estimator": "k3"}, limit_s=10.0)
        running.close()
        (shown,) = re.findall(r'`(\{"id": 7, .*?\})`\.', PAGE)
        assert list(json.loads(note.read_text())) == list(json.loads(shown))
        (start,) = re.findall(r'`(\{"protocol": 1, .*?\})`', PAGE)
        assert list(json.loads(start.replace("…", '""'))) == [
            "protocol", "entry", "module", "preload", "settings", "mutant",
        ]  # fmt: skip
        (ready,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
        assert set(json.loads(ready)) == {"kind", "provides", "versions", "documented"}


class TestProtocolErrors:
    """Every violation of the protocol is reported."""

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            ("", "ended with status 0"),
            ("say(b'Hello, world: no frame at all')", "must start with b'GATE'"),
            ("say(struct.pack('<4sI', b'GATE', 1 << 31))", "must be at most 1048576"),
            ("say(struct.pack('<4sI', b'GATE', 4) + b'null')", "header is not what a frame has"),
            ("say(struct.pack('<4sI', b'GATE', 90000) + b'[' * 90000)", "no frame"),
            ("say(frame([1, 2]))", "the answer is no object"),
            ("say(frame({'kind': 'hello'}))", "must be ready"),
            ("say(frame({'kind': 'absent', 'error': 'no licence'}))", "no licence"),
            ("say(frame({'kind': 'ready'}))", "not what docs/protocol.md says"),
            ("say(frame({'kind': 'ready', 'provides': ['double']}))", "not what docs/protocol.md says"),
            ("say(frame({'kind': 'ready', 'provides': {'double': 3}}))", "not what docs/protocol.md says"),
            ("say(frame({'kind': 'ready', 'provides': {}, 'versions': {'a': 1}}))", "must hold text"),
            ("say(frame({'kind': 'ready', 'provides': {'$float': 'x'}}))", "no frame"),
            ("say(frame({'$array': 3}))", "no frame"),
            ("say(frame({'kind': 'ready', 'provides': {}}) + b'more')", "4 bytes follow the frame"),
            ("os.kill(os.getpid(), 9)", "killed by SIGKILL"),
        ],
        ids=lambda value: value[:40] if value.startswith(("say", "os")) else "",
    )
    def test_a_bad_start_is_reported(self, tmp_path: Path, body: str, message: str) -> None:
        with pytest.raises(WorkerError, match=re.escape(message)):
            Worker.start(catalogue.from_file(str(program(tmp_path, body + "\n")), None), threads=1)

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            ({**ANSWER, "id": 2}, "answered call 2, must answer call 1"),
            ({k: v for k, v in ANSWER.items() if k != "id"}, "answered call None"),
            ({**ANSWER, "kind": "pass"}, "of kind 'pass'"),
            ({**ANSWER, "value": [1]}, "no value with seconds"),
            ({**ANSWER, "seconds": "quick"}, "no value with seconds"),
            ({"id": 1}, "of kind None"),
        ],
        ids=["another id", "no id", "kind", "no object", "seconds", "no kind"],
    )
    def test_a_bad_answer_is_reported(self, tmp_path: Path, answer: dict[str, object], message: str) -> None:
        file = program(tmp_path, f"say(frame({READY!r}))\nreceive()\nsay(frame({answer!r}))\ntime.sleep(20)\n")
        running = Worker.start(catalogue.from_file(str(file), None), threads=1)
        outcome = running.call("double", {}, limit_s=10.0)
        assert outcome.kind == "crashed"
        assert message in outcome.error
        assert not running.alive

    def test_arrays_too_large_for_the_judge_are_refused_from_the_header(self, tmp_path: Path) -> None:
        """Nothing of two GiB is read or allocated."""
        buffers = [{"dtype": "<f8", "shape": [1 << 28]}]
        file = program(
            tmp_path, f"say(frame({READY!r}))\nreceive()\nsay(frame({ANSWER!r}, {buffers!r}))\ntime.sleep(20)\n"
        )
        running = Worker.start(catalogue.from_file(str(file), None), threads=1)
        assert "must be at most 1073741824" in running.call("double", {}, limit_s=10.0).error

    @pytest.mark.parametrize(
        ("first", "message"),
        [
            ("#!/no/such/interpreter\n", "the interpreter that its first line names is not here"),
            ("no program\n", "does not start with #!"),
        ],
    )
    def test_a_program_that_cannot_run_is_absent(self, tmp_path: Path, first: str, message: str) -> None:
        """The message suggests a first line."""
        file = tmp_path / "talker"
        file.write_text(first)
        file.chmod(0o755)
        with pytest.raises(WorkerError, match=message):
            Worker.start(catalogue.from_file(str(file), None), threads=1)


def test_a_frame_has_the_documented_bytes() -> None:
    """Prefix, header and bytes of one array, by hand."""
    data = b"".join(bytes(part) for part in frames.encode({"a": np.array([1.0, 2.0], "<f4")}))
    size = struct.unpack("<I", data[4:8])[0]
    assert data[:4] == b"GATE"
    assert json.loads(data[8 : 8 + size]) == {"body": {"a": {"$array": 0}}, "buffers": [{"dtype": "<f4", "shape": [2]}]}
    assert data[8 + size :] == struct.pack("<2f", 1.0, 2.0)
