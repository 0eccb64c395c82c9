"""X-rays as a screen, as JSON and as a comparison with a baseline."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from recordings import Made, events, generated, lines, spread, write
from scenarios import LENGTHS, advantages, grpo, row_mean, second

from gates.model import ConfigurationError
from gates.report.xray import document, screen
from gates.xray.baseline import compare
from gates.xray.picture import Xray, read


def xray(folder: Path, *updates: Made, **request: Any) -> Xray:
    """Record updates of one process and read them."""
    for made in updates:
        write(folder / "p", made)
    events(folder / "p", generated(**request), updates=len(updates))
    return read(folder)


def plain(shown: Xray, width: int = 80, **how: bool) -> list[str]:
    return [line.plain for line in screen.lines(shown, width, **how)]


class TestScreen:
    """One screen."""

    def test_eight_rows_fit_one_screen_of_80_columns(self, tmp_path: Path) -> None:
        """What needs attention first, then what was read, then a line a row."""
        made = grpo()
        made.document = {"clip": {"norm": 3.0, "limit": 1.0}, "gradient_norm": 1.0}
        text = plain(xray(tmp_path, made, top_p=0.95))
        assert len(text) <= 24
        assert max(map(len, text)) <= 80
        assert text[0] == "X-ray · numpy 2 · Softmax · float32 · 1 update"
        assert text[1].startswith("  ATTENTION    sampled at temperature 1 with top-p 0.95")
        assert text[-8] == "    1      7     6  up         −0.144  −0.0205                      ✓    ✓   ✓"

    @pytest.mark.parametrize("width", [40, 60, 120])
    def test_no_line_is_wider_than_the_terminal(self, width: int, tmp_path: Path) -> None:
        shown = xray(tmp_path, *second(lines(LENGTHS), advantages(), beta=0.5, bounds=(0.8, 1.2)))
        assert max(len(line) for line in plain(shown, width, tokens=True)) <= width

    def test_no_number_is_cut_on_a_narrow_terminal(self, tmp_path: Path) -> None:
        """What does not fit is left out from the right, with its heading."""
        text = plain(xray(tmp_path, grpo()), 50)
        assert text[-9:-7] == ["  row tokens  from  pushed        sum", "    1      7     6  up         −0.144"]

    def test_a_further_update_says_only_what_differs(self, tmp_path: Path) -> None:
        text = plain(xray(tmp_path, *second(lines(LENGTHS), advantages())))
        later = text[text.index("update 2") :]
        assert any("tokens weigh by their ratio to the weights before update 1" in line for line in later)
        assert not any("prompts do not train" in line for line in later)
        assert later[-1].strip() == "else as in update 1"

    def test_tokens_are_listed_with_their_numbers(self, tmp_path: Path) -> None:
        """Hidden tokens stand in parentheses, several as one."""
        text = " ".join(plain(xray(tmp_path, grpo()), tokens=True))
        assert "w3 0  w6 −0.0205" in text
        assert "(4 × w0)" in text

    def test_colours_are_optional(self, tmp_path: Path) -> None:
        shown = xray(tmp_path, grpo())
        grounds = {
            colour: any(
                "on rgb" in str(span.style)
                for line in screen.lines(shown, 80, tokens=True, colour=colour)
                for span in line.spans
            )
            for colour in (True, False)
        }
        assert grounds == {True: True, False: False}

    def test_text_of_tokens_cannot_command_the_terminal(self, tmp_path: Path) -> None:
        path = write(tmp_path / "p", grpo()) / "update-1.json"
        hostile = json.loads(path.read_text())
        hostile["rows"][0]["text"] = ["\x1b[31m::error::\n"] * len(hostile["rows"][0]["ids"])
        path.write_text(json.dumps(hostile))
        events(tmp_path / "p", generated())
        text = plain(read(tmp_path), tokens=True)
        assert not any("\x1b" in line or line.startswith("::") for line in text)

    def test_what_could_not_be_recorded_is_said(self, tmp_path: Path) -> None:
        events(tmp_path / "p", {"event": "cannot", "reason": "the parameters are sharded: run one process"}, updates=0)
        assert plain(read(tmp_path))[1:] == ["  ATTENTION    the parameters are sharded: run one process"]

    def test_many_rows_are_cut(self, tmp_path: Path) -> None:
        rows = lines((5,) * 24)
        made = Made(grpo().model, rows, spread(rows, row_mean(rows, advantages(groups=6))))
        assert plain(xray(tmp_path, made))[-1] == "  and 8 rows more (--tokens lists all)"


class TestDocument:
    """The JSON document."""

    def test_it_follows_its_schema_and_is_strict_json(self, tmp_path: Path) -> None:
        record = document.record(xray(tmp_path, *second(lines(LENGTHS), advantages(), beta=0.5)))
        Draft202012Validator(document.schema()).validate(record)
        json.dumps(record, allow_nan=False)
        row = record["updates"][0]["rows"][0]
        assert (
            len({len(row[name]) for name in ("ids", "text", "attended", "keys", "coefficients", "errors", "parts")})
            == 1
        )
        assert row["sum"] == pytest.approx(-advantages()[0] / 8)


class TestBaseline:
    """Two documents are compared."""

    def documents(self, folder: Path, change: Callable[[Made], None]) -> tuple[dict[str, Any], dict[str, Any]]:
        old, made = grpo(), grpo()
        change(made)
        return document.record(xray(folder / "old", old)), document.record(xray(folder / "new", made))

    def test_equal_runs_have_no_change(self, tmp_path: Path) -> None:
        compared = compare(*self.documents(tmp_path, lambda made: None))
        assert compared.none
        assert compared.sentence == "no coefficient changed beyond the precision of both X-rays (63 compared)"

    def test_noise_of_float32_is_no_change(self, tmp_path: Path) -> None:
        def noise(made: Made) -> None:
            gradient = made.gradient()
            draw = np.random.default_rng(0).normal(size=gradient.size)
            made.extra = 1e-7 * np.linalg.norm(gradient) * draw / np.linalg.norm(draw)

        assert compare(*self.documents(tmp_path, noise)).none

    def test_one_token_is_named(self, tmp_path: Path) -> None:
        def change(made: Made) -> None:
            made.coefficients[2][7] *= 1.001

        compared = compare(*self.documents(tmp_path, change))
        assert [(c.update, c.row, c.token) for c in compared.changed] == [(1, 3, 8)]
        assert compared.changed[0].new == pytest.approx(1.001 * (compared.changed[0].old or 0.0))
        text = [line.plain for line in screen.changes(compared, 80)]
        assert text[0].startswith("1 coefficient changed beyond the precision of both X-rays")
        assert text[2].startswith("  update 1 row 3 token 8 ' w2': −0.00")

    def test_rows_in_another_order_have_no_change(self, tmp_path: Path) -> None:
        """Tokens are matched by their keys, not by their place."""

        def reversed_rows(made: Made) -> None:
            made.rows, made.coefficients = made.rows[::-1], made.coefficients[::-1]

        assert compare(*self.documents(tmp_path, reversed_rows)).none

    def test_a_common_factor_is_named(self, tmp_path: Path) -> None:
        def halve(made: Made) -> None:
            made.factor = 0.5

        compared = compare(*self.documents(tmp_path, halve))
        assert compared.factor == pytest.approx(0.5)
        assert compared.sentence.startswith("all coefficients are multiplied by 0.5")

    def test_a_token_that_only_one_has_is_a_change(self, tmp_path: Path) -> None:
        old, new = self.documents(tmp_path, lambda made: None)
        shorter = copy.deepcopy(new)
        shorter["updates"][0]["rows"] = shorter["updates"][0]["rows"][:7]
        compared = compare(old, shorter)
        assert not compared.none
        assert all(change.new is None for change in compared.changed)

    @pytest.mark.parametrize(
        "document_of", [lambda old: {}, lambda old: {**old, "updates": []}], ids=["empty", "no update"]
    )
    def test_other_documents_are_refused(self, document_of: Callable[[Any], Any], tmp_path: Path) -> None:
        old, new = self.documents(tmp_path, lambda made: None)
        with pytest.raises(ConfigurationError, match=r"is no document of|have no update in common"):
            compare(document_of(old), new)

    def test_other_rows_are_refused(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS, seed=8)
        made = Made(grpo().model, rows, spread(rows, row_mean(rows, advantages())))
        with pytest.raises(ConfigurationError, match="have no token in common"):
            compare(document.record(xray(tmp_path / "a", grpo())), document.record(xray(tmp_path / "b", made)))
