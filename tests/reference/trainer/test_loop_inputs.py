"""What is wrong with data, rewards and folders is told before a model is loaded."""

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import runs

from gates_reference.trainer.config.errors import TrainerError
from gates_reference.trainer.loop import inputs as loop_inputs
from gates_reference.trainer.loop import prepare

ROWS = [{"question": f"{n}+1=", "answer": str(n + 1), "note": "x"} for n in range(4)]
OWN = """
def needs(completions, level): return [0.0] * len(completions)
def none(): return []
"""


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that loads a model."""

    def load(config: Any) -> Any:
        raise AssertionError(f"the model {config.model} was loaded")

    monkeypatch.setattr(prepare, "load", load)


def _config(folder: Path, rows: list[dict[str, Any]] = ROWS, **changed: Mapping[str, Any]) -> Any:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "own.py").write_text(OWN)
    data = {"kind": "jsonl", "path": str(folder / "rows.jsonl"), "count": None, "prompt_column": "question"}
    tables: dict[str, Any] = {"rewards": {"functions": [{"name": "accuracy"}]}, **changed}
    return runs.config(folder / "run", **{**tables, "data": {**data, **changed.get("data", {})}})


def _own(folder: Path, name: str) -> dict[str, Any]:
    return {"functions": [{"name": "user", "function": f"{folder}/own.py:{name}"}]}


@pytest.mark.usefixtures("no_model")
class TestBeforeAModel:
    """Each mistake is one sentence, and no second was spent on a model."""

    @pytest.mark.parametrize(
        ("changed", "words"),
        [
            ({"data": {"path": "none.jsonl"}}, r"none\.jsonl: cannot be read"),
            (
                {"data": {"prompt_column": "questoin"}},
                r"row 0 has no column 'questoin'; it has answer, note, question; did you mean 'question'",
            ),
            (
                {"data": {"answer_column": "anser"}},
                r"no column 'anser'.*did you mean 'answer'\? Set data\.answer_column",
            ),
            ({"data": {"answer_column": "note"}}, "row 0: 'note' is 'x', must be a number"),
            ({"data": {"chosen_column": "yes", "rejected_column": "note"}}, "no column 'yes'"),
            (
                {"model": {"adapter_path": "nowhere"}, "adapter": {"b_std": 0.0}},
                r"model\.adapter_path: nowhere has no adapters\.safetensors",
            ),
            ({"rewards": {"functions": [{"name": "regex", "pattern": "("}]}}, "no regular expression"),
        ],
        ids=["file", "prompt", "answer", "no-number", "chosen", "adapter", "pattern"],
    )
    def test_mistake_is_reported_before_a_model_loads(
        self, tmp_path: Path, changed: dict[str, Any], words: str
    ) -> None:
        rollout = {"max_tokens": 6, "samples_per_prompt": 2, "path": "auto"}
        pairs = {"rollout": rollout, "algorithm": {"name": "dpo", "settings": {}}}
        more = pairs if "chosen_column" in changed.get("data", {}) else {}
        with pytest.raises(TrainerError, match=words):
            runs.train(_config(tmp_path, **more, **changed))

    def test_every_row_is_checked(self, tmp_path: Path) -> None:
        """A later row without a number is named by its place."""
        with pytest.raises(TrainerError, match="row 4: 'answer' is None, must be a number"):
            runs.train(_config(tmp_path, [*ROWS, {"question": "1", "answer": None}]))
        with pytest.raises(TrainerError, match="row 4: 'question' must be text, found list"):
            runs.train(_config(tmp_path, [*ROWS, {"question": ["1"], "answer": 2}]))

    def test_ambiguous_answer_is_refused(self, tmp_path: Path) -> None:
        """A fraction is not the number that it ends with; the way out is named."""
        words = r"row 4: 'answer' is '3/4', must be a number, .* for the reward 'accuracy'; .* function of your own"
        with pytest.raises(TrainerError, match=words):
            runs.train(_config(tmp_path, [*ROWS, {"question": "1", "answer": "3/4"}]))

    def test_function_argument_without_a_column_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TrainerError, match=r"'needs' has the argument 'level', .* completions and answer, note"):
            runs.train(_config(tmp_path, rewards=_own(tmp_path, "needs")))

    def test_function_without_completions_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(TrainerError, match=r"takes no keyword; it must take `completions`, as in def reward"):
            runs.train(_config(tmp_path, rewards=_own(tmp_path, "none")))

    def test_output_folder_that_cannot_be_created_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        output = {"folder": str(tmp_path / "file" / "run")}
        with pytest.raises(TrainerError, match=r"output\.folder .* cannot be made"):
            runs.train(_config(tmp_path, output=output))


def test_answers_are_optional_if_no_function_takes_them(tmp_path: Path) -> None:
    """With the column the function runs; without accuracy an answer may be missing."""
    (tmp_path / "rows").mkdir()
    rows = [{"question": "a", "level": 1}, {"question": "b", "level": 2, "more": 3}]
    config = _config(tmp_path, rows, rewards=_own(tmp_path, "needs"))
    inputs = loop_inputs.read(config)
    assert [row["level"] for row in inputs.rows] == [1, 2]
    assert len({inputs.digest(), loop_inputs.Inputs(inputs.rows[:1], []).digest()}) == 2


def test_decimal_answers_of_a_parquet_file(tmp_path: Path) -> None:
    """They are compared exactly, and written down as text."""
    pyarrow = pytest.importorskip("pyarrow")
    answers = [Decimal(f"{n}.50") for n in range(4)]
    table = pyarrow.table({"question": ["a", "b", "c", "d"], "answer": answers})
    pytest.importorskip("pyarrow.parquet").write_table(table, tmp_path / "rows.parquet")
    config = _config(
        tmp_path,
        data={"kind": "parquet", "path": str(tmp_path / "rows.parquet"), "validation_rows": 0},
        loop={"steps": 2, "evaluate_every_steps": 0},
    )
    runs.train(config)
    (line,) = runs.lines(tmp_path / "run", "completions")
    assert {row["answer"] for row in line["rows"]} < {repr(answer) for answer in answers}
