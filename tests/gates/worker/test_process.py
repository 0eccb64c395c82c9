"""The pipes between judge and worker, and the outcomes of misbehaving subjects."""

import json
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gates.model import Outcome, Subject
from gates.worker import frames, worker
from gates.worker.process import Worker, WorkerError
from gates.worker.watch import Watch

Maker = Callable[..., Subject]

SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.text(max_size=5)
ARRAYS = hnp.arrays(
    st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int32, np.int64, np.uint32, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)
KEYS = st.text(max_size=4).filter(lambda key: not key.startswith("$"))
TREES = st.recursive(
    SCALARS | ARRAYS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)
)


def round_trip(tree: Any) -> Any:
    data = b"".join(bytes(part) for part in frames.encode(tree))
    size = frames.header_size(data[:8])
    header, sizes = frames.parse_header(data[8 : 8 + size])
    assert len(data) == 8 + size + sum(sizes)
    return frames.decode(header, memoryview(data)[8 + size :])


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return a == b or (np.isnan(a) and np.isnan(b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and a == b


def call(subject: Subject, limit_s: float = 5.0, **inputs: Any) -> Outcome:
    running = Worker.start(subject, threads=1)
    try:
        return running.call("double", inputs or {"x": np.ones(3)}, limit_s=limit_s)
    finally:
        running.close()


class TestFrames:
    """Encoding of frames."""

    @given(TREES)
    def test_trees_round_trip_bit_for_bit(self, tree: Any) -> None:
        assert equal(tree, round_trip(tree))

    def test_a_nan_of_numpy_round_trips(self) -> None:
        """A loss is often a np.float64, whose repr is not JSON."""
        assert round_trip({"loss": np.float64("-inf")}) == {"loss": -np.inf}

    def test_layouts_and_byte_orders_arrive_as_plain_arrays(self) -> None:
        """A strided and a big-endian array arrive as little-endian C order with the same values."""
        strided = np.arange(10, dtype=">i4")[::3]
        back = round_trip({"a": strided})["a"]
        assert back.tolist() == [0, 3, 6, 9]
        assert back.dtype == np.dtype("<i4")

    @pytest.mark.parametrize("value", [b"bytes", {1, 2}, 1j, {"$array": 0}, {1: 2}, np.array(["a"]), np.array([None])])
    def test_other_values_are_refused(self, value: Any) -> None:
        """Bytes, sets, complex numbers, reserved or non-text keys and object arrays."""
        with pytest.raises(frames.FrameError):
            frames.encode({"v": value})

    @pytest.mark.parametrize(
        "buffers",
        [
            [{"dtype": "<f8", "shape": [1 << 40]}],
            [{"dtype": "<f8", "shape": [-1]}],
            [{"dtype": "|O", "shape": [1]}],
            [{"dtype": "<f8"}],
            "no list",
        ],
        ids=["huge", "negative", "objects", "no shape", "no list"],
    )
    def test_a_false_header_is_refused_before_allocation(self, buffers: Any) -> None:
        """Sizes, shapes and dtypes are checked from the header alone."""
        with pytest.raises(frames.FrameError):
            frames.parse_header(json.dumps({"body": None, "buffers": buffers}).encode())

    def test_a_wrong_magic_or_length_is_refused(self) -> None:
        """Text on the pipe, or a header longer than a MiB, is not a frame."""
        with pytest.raises(frames.FrameError, match="must start with"):
            frames.header_size(b"Hello, w")
        with pytest.raises(frames.FrameError, match="at most"):
            frames.header_size(frames.PREFIX.pack(frames.MAGIC, frames.HEADER_LIMIT + 1))

    @given(tree=TREES, step=st.integers(1, 40), room=st.integers(1, 64), most=st.integers(1, 4))
    def test_partial_writes_add_up_to_the_frame(self, tree: Any, step: int, room: int, most: int) -> None:
        """Small batches that are written a few bytes at a time add up to the frame."""
        parts = [memoryview(part).cast("B") for part in frames.encode(tree)]
        whole, sent = b"".join(map(bytes, parts)), b""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frames, "BATCH", room)
            patch.setattr(frames, "PARTS", most)
            while parts:
                given_to_it = b"".join(map(bytes, frames.batch(parts)))
                assert len(frames.batch(parts)) <= most
                assert len(given_to_it) <= room
                sent += given_to_it[:step]
                frames.drop(parts, min(step, len(given_to_it)))
        assert sent == whole

    @pytest.mark.parametrize("layout", ["strided", "read-only", "big-endian", "misaligned"])
    def test_a_layout_keeps_the_values(self, layout: str) -> None:
        array = np.arange(12.0).reshape(3, 4)
        assert np.array_equal(worker.rebuild(array, layout), array)

    def test_bfloat16_holds_the_same_values(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With ml_dtypes, exact values round-trip through bfloat16; without it the call is unsupported."""
        array = np.array([1.5, -(2.0**-130), np.inf, 0.0], np.float32)
        narrow = worker.rebuild(array, "bfloat16")
        assert (narrow.dtype.name, narrow.itemsize) == ("bfloat16", 2)
        assert round_trip(narrow).tolist() == array.tolist()
        monkeypatch.setitem(sys.modules, "ml_dtypes", None)
        with pytest.raises(NotImplementedError, match="without the package ml_dtypes"):
            worker.rebuild(array, "bfloat16")


class TestWorker:
    """The outcome of each behaviour of a subject."""

    def test_noise_on_stdout_is_harmless(self, subject: Maker) -> None:
        """A subject may print at import and in a call, through Python or the file descriptor."""
        noisy = subject("import os\nos.write(1, b'GATE' * 50000)\nprint('hello')\nreturn {'y': x}", head="print('hi')")
        assert call(noisy).kind == "value"

    @pytest.mark.parametrize(
        ("body", "kind", "message"),
        [
            ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "crashed", "out of memory"),
            ("import os\nos.write(2, b'last words')\nos._exit(4)", "crashed", "status 4; its last words: last words"),
        ],
        ids=["killed", "quits"],
    )
    def test_a_crash_is_explained(self, subject: Maker, body: str, kind: str, message: str) -> None:
        """By the signal or by the status and the last words; run/test_hostile.py has the other outcomes."""
        outcome = call(subject(body))
        assert outcome.kind == kind
        assert message in outcome.error

    def test_a_worker_exits_without_its_judge(self, subject: Maker) -> None:
        """The end of the request pipe ends a worker, even in the middle of a call."""
        running = Worker.start(subject("import time\ntime.sleep(60)"), threads=1)
        for part in frames.encode({"op": "double", "inputs": {"x": np.ones(1)}, "layout": {}}):
            os.write(running.to_worker, part)
        os.close(running.to_worker)
        running.to_worker = os.dup(running.from_worker)  # something for close() to close
        assert running.process.wait(10.0) == 0
        running.close()

    def test_two_threads_may_close_a_worker(self, subject: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
        """After Ctrl-C two threads may close it at once; the pipes are closed once."""
        running = Worker.start(subject("return {'y': x}"), threads=1)
        failed: list[BaseException] = []

        def close() -> None:
            try:
                running.close()
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=close)
        find = Watch.find

        def in_the_middle(watch: Watch) -> list[psutil.Process]:
            monkeypatch.setattr(Watch, "find", find)
            thread.start()
            thread.join(0.5)  # done by then, or waiting for this one
            return find(watch)

        monkeypatch.setattr(Watch, "find", in_the_middle)
        close()
        thread.join(10.0)
        assert not thread.is_alive()
        assert not failed

    @pytest.mark.parametrize(
        ("head", "kind"), [("import no_such_module", "absent"), ("1 / 0", "broken"), ("raise SystemExit", "broken")]
    )
    def test_a_failed_start_has_a_reason(self, subject: Maker, head: str, kind: str) -> None:
        """A missing module is absent; other errors at import are a broken subject."""
        with pytest.raises(WorkerError) as caught:
            Worker.start(subject("return {}", head=head), threads=1)
        assert caught.value.kind == kind

    def test_an_unavailable_layout_is_unsupported(self, subject: Maker) -> None:
        """Without bfloat16 in the interpreter the call is unsupported and the worker continues."""
        bare = subject("return {'y': x}", head="import sys\nsys.modules['ml_dtypes'] = None")
        running = Worker.start(bare, threads=1)
        try:
            inputs = {"x": np.ones(2, np.float32)}
            refused = running.call("double", inputs, limit_s=10.0, layout={"x": "bfloat16"})
            assert refused.kind == "unsupported"
            assert "ml_dtypes" in refused.error
            assert running.call("double", inputs, limit_s=10.0).kind == "value"
        finally:
            running.close()

    def test_a_subject_has_its_environment_variables(self, subject: Maker) -> None:
        plain = subject(
            "return {'y': np.array(len(FORCED))}", head="import os\nFORCED = os.environ.get('RLKERNELS_ISA', '')"
        )
        assert call(plain).value["y"] == 0
        assert call(replace(plain, environment={"RLKERNELS_ISA": "avx2"})).value["y"] == 4

    def test_large_frames_do_not_deadlock(self, subject: Maker) -> None:
        """Eight megabytes each way exceed the capacity of the pipes."""
        outcome = call(subject("return {'y': x}"), x=np.ones(1 << 20))
        assert outcome.value["y"].size == 1 << 20
