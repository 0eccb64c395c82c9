"""Rows that hold several texts."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from recordings import EOS, Line, Made, Model, spread
from scenarios import picture

from gates.xray import launch
from gates.xray.reading.reading import Reading

PACKED = [5, 6, 7, EOS, 8, 9, 10, EOS, 11, 12, EOS]


def reading_of(folder: Path, *, sampled: bool = False, **texts: Any) -> Reading | None:
    """Two supervised rows, of which the first holds three texts."""
    rows = [
        Line([4], PACKED, seen=sampled, texts={"starts": [5, 9], **texts}),
        Line([3], [13, 14, EOS], padding=len(PACKED) - 3, seen=sampled),
    ]
    return picture(folder, Made(Model.drawn(), rows, spread(rows, [-0.1, -0.1])), sampled=sampled).of("several texts")


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        ("run on", "no boundary between them, and positions run on; right for"),
        ("begin anew", "no boundary between them; positions begin anew; right for"),
        (None, "no boundary between them; right for"),
    ],
)
def test_texts_that_attend_to_those_before(positions: str | None, words: str, tmp_path: Path) -> None:
    """It is read, since the turns of a conversation look alike."""
    reading = reading_of(tmp_path, apart=0.3, positions=positions)
    assert reading is not None
    assert reading.kind == "read"
    assert reading.sentence.startswith("row 1 holds 3 texts, one behind the closing token of the other; the later ones")
    assert "by up to 0.3 nats" in reading.sentence
    assert words in reading.sentence


def test_a_boundary(tmp_path: Path) -> None:
    reading = reading_of(tmp_path, apart=2e-6, positions="begin anew")
    assert reading is not None
    assert reading.sentence.endswith("do not attend to the first: attention has a boundary between them")


def test_turns_that_were_sampled_and_what_was_not_measured_tell_nothing(tmp_path: Path) -> None:
    assert reading_of(tmp_path / "sampled", sampled=True, apart=0.3) is None
    assert reading_of(tmp_path / "unmeasured", apart=None) is None


@pytest.fixture
def recorder() -> ModuleType:
    """The recorder's module."""
    spec = importlib.util.spec_from_file_location("texts", launch.RECORDER / "gates_xray_texts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestRecorder:
    """Where texts begin, and what the later ones depend on."""

    @pytest.mark.parametrize(
        ("ids", "starts"),
        [
            ([4, *PACKED], [5, 9]),
            ([4, 5, EOS], []),
            ([4, 5, EOS, EOS, EOS], []),
            ([EOS, 4, 5, EOS], []),
            ([4, 5, EOS, 0, 0], []),
            ([4, 5, EOS, EOS, 6, EOS], [4]),
        ],
        ids=["packed", "one", "padding that ends", "an end in front", "padding", "two ends"],
    )
    def test_starts(self, recorder: ModuleType, ids: list[int], starts: list[int]) -> None:
        assert recorder.starts(ids, [1] * len(ids), {EOS}, 0) == starts

    def test_hidden_tokens_do_not_count(self, recorder: ModuleType) -> None:
        assert recorder.starts([EOS, EOS, 4, 5, EOS, 6], [0, 0, 1, 1, 1, 0], {EOS}, None) == []

    @pytest.mark.parametrize("bounded", [False, True])
    def test_the_first_text_is_replaced(self, recorder: ModuleType, bounded: bool) -> None:
        """A model whose log-probs are the sum of the tokens before, of the row or of the text alone."""

        def log_probs(row: dict[str, Any], ids: Sequence[int]) -> list[float]:
            begins = [0 if not bounded else max([0, *(s for s in (5, 9) if s < k)]) for k in range(1, len(ids))]
            return [float(sum(ids[begin:k])) for k, begin in enumerate(begins, 1)]

        row = {"ids": [4, *PACKED], "attended": [1] * (len(PACKED) + 1)}
        recorder.give([row], {"eos": [EOS], "pad": 0}, log_probs)
        ids = recorder.otherwise(row["ids"], row["attended"], {EOS}, 5)
        assert ids[5:] == row["ids"][5:]
        assert all(a != b for a, b in zip(ids[:4], row["ids"][:4], strict=True))
        assert row["texts"]["apart"] == (0.0 if bounded else abs(sum(ids) - sum(row["ids"])))

    def test_a_pass_that_fails_leaves_no_number(self, recorder: ModuleType) -> None:
        row = {"ids": [4, *PACKED], "attended": [1] * (len(PACKED) + 1)}
        recorder.give([row], {"eos": [EOS], "pad": 0}, lambda row, ids: 1 / 0)
        assert row["texts"] == {"starts": [5, 9], "apart": None}
