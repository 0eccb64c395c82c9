"""Prompts of supervised training whose end shows where the tokenizer was given them by themselves."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from recordings import Line, Made, Model, lines
from scenarios import LENGTHS, picture

from gates.xray import launch
from gates.xray.reading.reading import Reading


def supervised(*, prompts: bool, divisor: str) -> Made:
    """One update of supervised rows, each with a prompt of its own, trained with it or without."""
    rows = lines(LENGTHS, group=1, prompts=(5, 4, 3))
    for line in rows:
        line.seen, line.encoded = False, True
    counts = {"completions": sum(line.length for line in rows), "rows": len(rows)}
    counts["all"] = counts["completions"] + sum(len(line.prompt) - 1 for line in rows)
    return Made(Model.drawn(), rows, [trained(line, prompts) / -counts[divisor] for line in rows])


def trained(line: Line, prompts: bool) -> np.ndarray:
    """Return 1 for each token that trains; the first has no log-prob."""
    weights = [float(prompts)] * len(line.prompt) + [1.0] * line.length + [0.0] * line.padding
    return np.array([0.0, *weights[1:]])


def prompt_of(folder: Path, made: Made) -> Reading:
    reading = picture(folder, made, sampled=False).of("prompt")
    assert reading is not None
    return reading


def test_a_prompt_that_trains_beside_a_mean_over_completions(tmp_path: Path) -> None:
    """Labels and divisor contradict each other, so one is not meant."""
    reading = prompt_of(tmp_path, supervised(prompts=True, divisor="completions"))
    assert reading.kind == "attention"
    assert reading.sentence.startswith("prompts train: ")
    assert reading.sentence.endswith(f"while the loss is divided by the {sum(LENGTHS)} tokens of completions alone")


@pytest.mark.parametrize("divisor", ["all", "rows"])
def test_whole_sequences_are_not_blamed(divisor: str, tmp_path: Path) -> None:
    reading = prompt_of(tmp_path, supervised(prompts=True, divisor=divisor))
    assert (reading.kind, reading.sentence.partition(":")[0]) == ("read", "prompts train")


def test_completions_alone(tmp_path: Path) -> None:
    reading = prompt_of(tmp_path, supervised(prompts=False, divisor="completions"))
    assert (reading.kind, reading.sentence.partition(" (")[0]) == ("read", "prompts do not train")


def test_a_row_without_a_known_prompt_tells_nothing(tmp_path: Path) -> None:
    made = supervised(prompts=True, divisor="completions")
    made.rows[3].encoded = False
    assert prompt_of(tmp_path, made).kind == "read"


@pytest.fixture
def texts() -> ModuleType:
    """The recorder's module, fresh."""
    spec = importlib.util.spec_from_file_location("encoded", launch.RECORDER / "gates_xray_encoded.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestBeginning:
    """Where a row's beginning is a text that the tokenizer was given."""

    def test_texts_are_kept_in_the_forms_of_tokenizers(self, texts: ModuleType) -> None:
        for result in ([1, 5, 7], {"input_ids": [1, 6]}, {"input_ids": [[1, 8], [1, 9, 9]]}, "decoded", None, [], 3):
            texts.keep(result)
        starts = [[1, 5, 7], [1, 6], [1, 8], [1, 9, 9]]
        assert [texts.beginning([*start, 4, 2], [1] * (len(start) + 2)) for start in starts] == [3, 2, 2, 3]

    def test_padding_does_not_count(self, texts: ModuleType) -> None:
        texts.keep([1, 5])
        assert texts.beginning([0, 0, 1, 5, 6, 0], [0, 0, 1, 1, 1, 0]) == 2

    def test_a_whole_row_and_several_beginnings_tell_nothing(self, texts: ModuleType) -> None:
        """Turns of a conversation are several; a token with which every text begins is none."""
        texts.keep({"input_ids": [[1], [1, 5, 6], [1, 7], [1, 7, 8]]})
        assert texts.beginning([1, 5, 6], [1, 1, 1]) == 1
        assert texts.beginning([1, 7, 8, 9], [1] * 4) is None
        assert texts.beginning([4, 7, 8, 9], [1] * 4) is None

    def test_packed_documents_are_no_prompts(self, texts: ModuleType) -> None:
        texts.keep({"input_ids": [[1, 5, 6], [1, 7, 8]]})
        assert texts.beginning([1, 5, 6, 1, 7, 8, 1, 3], [1] * 8) is None
