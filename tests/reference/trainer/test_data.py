"""Data: formats, wrong lines, columns, templates, and an order that is a function of seed and position."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gates_reference import tiny
from gates_reference.trainer import model as models
from gates_reference.trainer.config import sections
from gates_reference.trainer.data import order, prompts, rows
from gates_reference.trainer.data.rows import DataError

ROWS = [{"prompt": "1+1=", "answer": 2}, {"prompt": "zwölf – 2", "answer": "10"}, {"prompt": "3+4=", "answer": 7}]
DATA = sections.Data(max_prompt_tokens=64)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """The tiny model's."""
    return models.load({"hidden": 32}).tokenizer


def _write(folder: Path, kind: str) -> Path:
    path = folder / f"rows.{kind}"
    if kind == "json":
        path.write_text(json.dumps(ROWS))
    elif kind == "jsonl":
        path.write_text("\n\n".join(json.dumps(row) for row in ROWS) + "\n")
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        table = pyarrow.table({"prompt": [r["prompt"] for r in ROWS], "answer": [str(r["answer"]) for r in ROWS]})
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    else:
        datasets = pytest.importorskip("datasets")
        datasets.Dataset.from_list([{**r, "answer": str(r["answer"])} for r in ROWS]).save_to_disk(str(path))
    return path


class TestRows:
    """Every format gives the same rows."""

    @pytest.mark.parametrize("kind", ["json", "jsonl", "parquet", "datasets"])
    def test_formats(self, tmp_path: Path, kind: str) -> None:
        """Prompts and answers come back in their order, whatever the file; `count` takes the first."""
        path = str(_write(tmp_path, kind))
        found = rows.read(kind, path)
        assert [(row["prompt"], str(row["answer"])) for row in found] == [(r["prompt"], str(r["answer"])) for r in ROWS]
        assert rows.read(kind, path, count=2) == found[:2]

    @pytest.mark.parametrize(
        ("kind", "content", "words"),
        [
            pytest.param("jsonl", b'{"prompt": "a"}\n{"prompt": "b"\n', "line 2: is no JSON", id="torn-line"),
            pytest.param("jsonl", b'{"prompt": "a"}\n[1]\n', "line 2: must be an object", id="no-object"),
            pytest.param("jsonl", b'{"prompt": "a"}\n\n{"prompt": "\xff"}\n', "line 3: is no UTF-8", id="no-utf8"),
            pytest.param("jsonl", b"\n", "has no rows", id="empty"),
            pytest.param("json", b'{"prompt": "a"}', "must be a list of objects", id="object"),
            pytest.param("json", b'[{"prompt": "a"}, 3]', "item 1: must be an object", id="item"),
            pytest.param("json", b"[" * 100_000, "is no JSON", id="deep"),
            pytest.param(
                "jsonl",
                b'{"prompt": "a"}\n{"prompt": "b", "answer": -' + b"7" * 5000 + b"}\n",
                r"line 2: .*an integer of 5001 digits, which Python does not read; write it as a text: line 1 column 27",
                id="long-integer",
            ),
            pytest.param(
                "json",
                b'[{"a": 1},\n{"a": ' + b"7" * 5000 + b"}]",
                "5000 digits.*: line 2 column 7",
                id="long-integer-in-list",
            ),
            pytest.param("parquet", b"PAR1 not really", "no readable parquet", id="parquet"),
            pytest.param("datasets", b"", "is not on this machine", id="datasets"),
        ],
    )
    def test_wrong_content_is_named(self, tmp_path: Path, kind: str, content: bytes, words: str) -> None:
        """The message has the file and the line or item."""
        path = tmp_path / "x"
        path.write_bytes(content)
        with pytest.raises(DataError, match=words) as error:
            rows.read(kind, str(path))
        assert str(path) in str(error.value)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        """As everything else that cannot be read."""
        with pytest.raises(DataError, match="cannot be read"):
            rows.read("jsonl", str(tmp_path / "none"))

    def test_an_unknown_split_is_named_with_those_that_are_there(self, tmp_path: Path) -> None:
        """A saved dictionary of splits has `train` only."""
        datasets = pytest.importorskip("datasets")
        datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS[:1])}).save_to_disk(str(tmp_path / "d"))
        with pytest.raises(DataError, match="no split 'tset'; it has train"):
            rows.read("datasets", str(tmp_path / "d"), split="tset")

    def test_a_folder_of_files_is_a_data_set_with_splits(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What `datasets` makes a data set of, by its own rules, is read by split, and an unknown one is named."""
        pytest.importorskip("datasets")
        monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
        folder = tmp_path / "mine"
        folder.mkdir()
        for split, row in (("train", ROWS[0]), ("test", ROWS[1])):
            (folder / f"{split}.jsonl").write_text(json.dumps({"prompt": row["prompt"], "answer": str(row["answer"])}))
        for split, row in (("train", ROWS[0]), ("test", ROWS[1])):
            assert [found["prompt"] for found in rows.read("datasets", str(folder), split=split)] == [row["prompt"]]
        with pytest.raises(DataError, match="tset"):
            rows.read("datasets", str(folder), split="tset")

    def test_sums_need_no_file(self) -> None:
        """256 by default; the seed chooses which."""
        assert len(rows.read("sums", None)) == 256
        assert rows.read("sums", None, seed=1, count=3) != rows.read("sums", None, seed=2, count=3)


class TestPrompts:
    """From rows to tokens."""

    def test_indices_are_places_in_the_source(self, tokenizer: Any) -> None:
        """A prompt that is dropped leaves the indices of the others, which draws are keyed by, as they were."""
        source = [ROWS[0], {"prompt": "x" * 400, "answer": 1}, ROWS[2]]
        made = prompts.make(source, tokenizer, DATA.model_copy(update={"too_long": "drop"}))
        assert [prompt.index for prompt in made] == [0, 2]
        assert [prompt.answer for prompt in made] == [2, 7]

    def test_columns_are_mapped(self, tokenizer: Any) -> None:
        """Any columns may hold prompt and answer."""
        source = [{"question": "1+1=", "solution": 2}]
        columns = {"prompt_column": "question", "answer_column": "solution"}
        (made,) = prompts.make(source, tokenizer, DATA.model_copy(update=columns))
        assert (made.text, made.answer) == ("1+1=", 2)

    def test_the_template_wraps_the_prompt(self, tokenizer: Any) -> None:
        """ChatML, written out by hand, with and without a system prompt; the answer is about to start."""
        plain = prompts.encode(tokenizer, "Hi", chat=True)
        assert tokenizer.decode(plain.tolist()) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
        system = prompts.encode(tokenizer, "Hi", chat=True, system="Be brief")
        assert tokenizer.decode(system.tolist()).startswith(
            "<|im_start|>system\nBe brief<|im_end|>\n<|im_start|>user\nHi"
        )

    def test_the_template_gets_its_options(self) -> None:
        """Qwen3's way to switch thinking off, by a template of one line; an option that it does not know is refused."""

        class Fast:
            chat_template = "{% if enable_thinking %}..."

            def apply_chat_template(self, messages: Any, *, enable_thinking: bool = True, **_: Any) -> list[int]:
                return [len(messages), int(enable_thinking)]

        row = [{"prompt": "Hi"}]
        chat = DATA.model_copy(update={"chat": True})
        (thinking,) = prompts.make(row, Fast(), chat)
        (fast,) = prompts.make(row, Fast(), chat.model_copy(update={"chat_options": {"enable_thinking": False}}))
        assert (thinking.ids.tolist(), fast.ids.tolist()) == ([1, 1], [1, 0])
        with pytest.raises(DataError, match="knows no 'enable_thinkin_'"):
            prompts.make(row, Fast(), chat.model_copy(update={"chat_options": {"enable_thinkin_": False}}))

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            ({"question": "a"}, "row 1 has no column 'prompt'; it has question"),
            ({"prompt": 3}, "row 1: 'prompt' must be text, found int"),
            ({"prompt": ""}, "row 1: 'prompt' has no tokens"),
            ({"prompt": "1+\ud83d"}, r"row 1: 'prompt' has half of a surrogate pair, U\+D83D, as character 2"),
            ({"prompt": "x" * 400}, r"row 1: the prompt has \d+ tokens, more than data.max_prompt_tokens = 64"),
        ],
        ids=["column", "type", "empty", "surrogate", "long"],
    )
    def test_a_wrong_row_is_named(self, tokenizer: Any, row: dict[str, Any], words: str) -> None:
        with pytest.raises(DataError, match=words):
            prompts.make([ROWS[0], row], tokenizer, DATA)

    def test_a_tokenizer_without_template_is_an_error(self) -> None:
        with pytest.raises(DataError, match=r"set data\.chat = false"):
            prompts.encode(type("Bare", (), {"chat_template": None})(), "a", chat=True)


class TestOrder:
    """A function of the seed and the position."""

    @pytest.mark.parametrize("count", [1, 2, 7, 100])
    def test_every_epoch_has_each_prompt_once(self, count: int) -> None:
        """Two epochs are two permutations, and not the same one."""
        places = order.take(count, 0, 2 * count, 3, shuffle=True)
        assert Counter(places) == dict.fromkeys(range(count), 2)
        assert count < 7 or places[:count] != places[count:]

    def test_any_position_can_be_gone_on_from(self) -> None:
        """Taken in portions, across epochs, the order is the same; another seed has another."""
        whole = order.take(7, 0, 30, 3, shuffle=True)
        assert [p for start in range(0, 30, 5) for p in order.take(7, start, 5, 3, shuffle=True)] == whole
        assert order.take(7, 0, 30, 4, shuffle=True) != whole
        assert order.take(3, 2, 4, 0, shuffle=False) == [2, 0, 1, 2]

    def test_the_stream_is_philox(self) -> None:
        """The words are NumPy's Philox 4x64 of the key (seed, epoch), which NumPy guarantees, sorted stably."""
        words = np.random.Philox(key=np.array([5, 1], np.uint64)).random_raw(6)
        assert order.permutation(5, 1, 6).tolist() == sorted(range(6), key=lambda n: words[n])

    def test_validation_is_apart(self, tokenizer: Any) -> None:
        """No prompt in both, none lost, both in the order of the source; all of them for validation is an error."""
        made = prompts.make(rows.read("sums", None, count=20), tokenizer, DATA)
        split = order.split(made, 5, 1)
        train, apart = ([p.index for p in part] for part in (split.train, split.validation))
        assert sorted(train + apart) == list(range(20))
        assert (len(apart), apart, train) == (5, sorted(apart), sorted(train))
        with pytest.raises(DataError, match="must be below the number of prompts, 20"):
            order.split(made, 20, 1)


def test_the_tiny_tokenizer_is_there() -> None:
    """The fixture's folder is a built one."""
    assert tiny.build({"hidden": 32}).is_dir()
