"""Preference pairs whose completions begin alike, and whose prompts nobody saw."""

from pathlib import Path

import numpy as np
import pytest
from recordings import Line, Made, Model, lines, spread
from scenarios import picture

from gates.xray.picture import Picture

LENGTHS = (7, 5, 9, 6, 4, 8, 6, 7)


def rows(alike: int = 0) -> list[Line]:
    """Four pairs, chosen and rejected in turn, whose completions begin with the same tokens."""
    listed = lines(LENGTHS, 2, prompts=(3, 5, 4, 6))
    for chosen, rejected in zip(listed[::2], listed[1::2], strict=True):
        rejected.completion[:alike] = chosen.completion[:alike]
    for row in listed:
        row.seen = False
    return listed


def shown(folder: Path, listed: list[Line], *, mean: bool, prompt: bool = False) -> Picture:
    """Pairs that are pushed alike, by sums or by means over tokens; with `prompt`, prompts train as completions do."""
    if prompt:
        listed = [Line([row.ids[0]], row.prompt[1:] + row.completion, row.padding, seen=False) for row in listed]
    weights = [(0.1 if k % 2 else -0.1) / (row.length if mean else 1) for k, row in enumerate(listed)]
    return picture(folder, Made(Model.drawn(), listed, spread(listed, weights)), sampled=False)


def said(seen: Picture, name: str) -> tuple[str, str]:
    reading = seen.of(name)
    assert reading is not None
    return reading.kind, reading.sentence


@pytest.mark.parametrize("mean", [False, True], ids=["sums", "means"])
def test_pairs_that_are_pushed_alike_weigh_the_same(mean: bool, tmp_path: Path) -> None:
    """A mean gives the tokens of short completions more, and not their pairs."""
    seen = shown(tmp_path, rows(alike=2), mean=mean)
    assert said(seen, "between rows")[1] == "all pairs weigh the same, as where policy and reference are equal"
    assert not [reading.name for reading in seen.readings if reading.kind == "attention"]


def test_a_prompt_that_trains_shows_where_rows_are_averaged(tmp_path: Path) -> None:
    kind, sentence = said(shown(tmp_path, rows(), mean=True, prompt=True), "prompt")
    assert (kind, sentence.partition(":")[0]) == ("attention", "prompts train")


def test_a_prompt_makes_no_difference_where_rows_are_summed(tmp_path: Path) -> None:
    for prompt in (False, True):
        kind, sentence = said(shown(tmp_path / str(prompt), rows(), mean=False, prompt=prompt), "prompt")
        assert (kind, "makes no difference" in sentence) == ("read", True)


def test_a_chosen_row_that_the_rejected_one_continues_is_no_prompt(tmp_path: Path) -> None:
    """The reference's pass over the chosen row ends where the rejected one goes on."""
    rng = np.random.default_rng(5)
    listed = []
    for length in (3, 4, 5):
        prompt, completion = rng.integers(2, 31, 4).tolist(), rng.integers(2, 31, length + 3).tolist()
        chosen = Line(prompt, completion[:length], padding=3, seen=False)
        rejected = Line([*prompt, *completion[:length]], completion[length:])  # as the recorder takes it for a prompt
        listed += [chosen, rejected]
    weights = []
    for chosen, rejected in zip(listed[::2], listed[1::2], strict=True):
        whole = np.zeros(len(rejected.ids))
        whole[4:] = 0.1 / (len(rejected.ids) - 4)
        weights += [*spread([chosen], [-0.1 / chosen.length]), whole]
    seen = picture(tmp_path, Made(Model.drawn(), listed, weights), sampled=False)
    assert "prompts train" not in said(seen, "prompt")[1]


def test_a_row_of_the_update_before_is_no_prompt(tmp_path: Path) -> None:
    """The reference's pass over a row ended where a row of the next update goes on."""
    first = rows()
    later = [Line([*row.prompt, *row.completion], [7, 8, 9]) for row in first]  # as the recorder takes it for a prompt
    weights = []
    for index, row in enumerate(later):
        whole = np.zeros(len(row.ids))
        whole[len(first[index].prompt) :] = 0.1 if index % 2 else -0.1
        weights.append(whole)
    made = Made(Model.drawn(), first, spread(first, [0.1 if k % 2 else -0.1 for k in range(len(first))]))
    seen = picture(tmp_path, made, Made(Model.drawn(), later, weights, number=2), sampled=False)
    assert said(seen, "prompt")[0] != "attention"


def test_a_likelihood_of_all_tokens_beside_a_loss_of_pairs_is_read(tmp_path: Path) -> None:
    """ORPO as TRL has it: the likelihood of chosen rows, prompts too, and odds of completions averaged over tokens."""
    listed = rows()
    weights = []
    for index, row in enumerate(listed):
        whole = np.zeros(len(row.ids))
        begin, end = len(row.prompt), len(row.prompt) + row.length
        if index % 2 == 0:
            row.prompt[1] = (
                2 + index
            )  # prompts differ from those of the rejected rows, as other merges of a tokenizer do
            whole[1:end] -= 0.02
        whole[begin:end] += (0.1 + 0.02 * index if index % 2 else -0.1 - 0.03 * index) / row.length
        weights.append(whole)
    seen = picture(tmp_path, Made(Model.drawn(), listed, weights), sampled=False)
    assert "two weights: −0.02" in said(seen, "within rows")[1]
    assert not [reading.name for reading in seen.readings if reading.kind == "attention"]
