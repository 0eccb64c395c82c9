"""Rewards: numbers in text, every built-in function by hand, one's own, and the blame where something is wrong."""

import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates_reference.trainer.config import functions as sections
from gates_reference.trainer.rewards import builtin, combine, numbers, user
from gates_reference.trainer.rewards.combine import Function, RewardError
from gates_reference.trainer.rewards.samples import Sample


def sample(completion: str, *, answer: Any = 42, tokens: int = 5, group: int = 0, prompt: str = "6*7=") -> Sample:
    return Sample(prompt, completion, tokens, answer, group, {"prompt": prompt, "answer": answer})


class TestNumbers:
    """The final answer of a text."""

    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("42", 42),
            ("The answer is 42.", 42),
            ("6*7=42", 42),
            ("-42", -42),
            ("it is \u22127", -7),
            ("3-5", 5),
            ("(3)-5", 5),
            ("x-5", 5),
            ("= -5", -5),
            ("1,234,567", 1234567),
            ("1,23", 23),
            ("12,3456", 3456),
            ("3.50", Fraction(7, 2)),
            ("3.", 3),
            ("0.1", Fraction(1, 10)),
            (".5", 5),
            ("007", 7),
            ("5 then #### 42 (not 43)", 42),
            ("####7 #### 8", 8),
            (r"so \boxed{42} and 3 more", 42),
            ("#### none, so 9", 9),
            ("no number", None),
            ("", None),
            ("\uff19", None),
            ("1" * 200, None),
        ],
    )
    def test_answers(self, text: str, value: object) -> None:
        """Read by hand; a mark wins over what comes before it, else the last number counts."""
        assert numbers.answer(text) == value

    @given(st.text(alphabet="0123456789,.-+#x {}\\boxed\u2212", max_size=200))
    def test_any_text_is_parsed_without_an_error(self, text: str) -> None:
        """Any text gives a number or None, and spans stand inside the text, in order, without overlap."""
        assert numbers.answer(text) is None or isinstance(numbers.answer(text), Fraction)
        ends = [place for span in numbers.spans(text) for place in span]
        assert ends == sorted(ends)
        assert all(0 <= place <= len(text) for place in ends)

    @given(st.integers(-(10**15), 10**15), st.integers(0, 6))
    def test_formatted_number_is_read_exactly(self, units: int, places: int) -> None:
        """Integers and decimals with thousands separators come back exactly."""
        exact = Fraction(units, 10**places)
        text = f"{'-' if units < 0 else ''}{abs(units) // 10**places:,}" + (
            f".{abs(units) % 10**places:0{places}d}" if places else ""
        )
        assert numbers.answer(f"= {text}") == exact

    @pytest.mark.parametrize("text", ["1,", "1", "-", "1,2", "####", "1.1", "\\boxed{"], ids=repr)
    def test_time_is_linear(self, text: str) -> None:
        """Eight times the text takes at most thirty times the time: a quadratic parser would take sixty-four."""
        times = []
        for count in (20_000, 160_000):
            start = time.process_time()
            numbers.answer(text * count)
            times.append(time.process_time() - start)
        assert times[1] <= 30 * max(times[0], 1e-3)

    @pytest.mark.parametrize(
        ("wanted", "value"),
        [
            (42, 42),
            (4.5, Fraction(9, 2)),
            (0.1, Fraction(1, 10)),
            (Decimal("1.50"), Fraction(3, 2)),
            ("1,000", 1000),
            (" -2.50\n", Fraction(-5, 2)),
            ("#### 1,000", 1000),
            ("3 + 4 = 7\n#### 7\n", 7),
            (r"3/4 of 4 is $\boxed{3}$.", 3),
            ("3/4", None),
            ("1e3", None),
            ("1,23", None),
            (".5", None),
            ("5 or 6", None),
            ("5 m", None),
            ("it is 5", None),
            ("#### 3/4", None),
            ("5 #### none", None),
            (r"\boxed{\frac{3}{4}}", None),
            (r"\boxed{1e3}", None),
            ("1" * 200, None),
            ("", None),
            ("####", None),
            ("x", None),
            (None, None),
            (True, None),
        ],
    )
    def test_expected_answers(self, wanted: object, value: object) -> None:
        """Numbers, and text that is one or ends with one as in GSM8K; a decimal float is what it shows; no text is guessed at."""
        assert numbers.exact(wanted) == value

    @pytest.mark.parametrize("wanted", [float("nan"), float("inf"), Decimal("nan"), Decimal("-inf")])
    def test_no_answer_is_infinite(self, wanted: object) -> None:
        assert numbers.exact(wanted) is None


class TestBuiltin:
    """Each function by hand."""

    def test_accuracy(self) -> None:
        score = builtin.accuracy()
        texts = ["42", "it is 42.0", "41", "", "42 or 43", "#### 42"]
        assert score([sample(text) for text in texts]) == [1, 1, 0, 0, 0, 1]

    def test_accuracy_needs_a_number_to_compare_with(self) -> None:
        """A missing answer column is an error, not a score of 0."""
        with pytest.raises(ValueError, match=r"data\.answer_column"):
            builtin.accuracy()([sample("42", answer=None)])

    def test_ambiguous_expected_answer_is_refused(self) -> None:
        """With the sample: a completion that says 4 is not right because the answer "3/4" ends with it."""
        function = Function("accuracy", 1.0, builtin.accuracy())
        with pytest.raises(RewardError, match=r"the expected answer is '3/4', must be a number.*completion 'it is 4'"):
            combine.column(function, [sample("4", answer=4), sample("it is 4", answer="3/4")])

    def test_format(self) -> None:
        """Both tags, each once, in order."""
        score = builtin.format_(["think", "answer"])
        texts = {
            "<think>a</think><answer>b</answer>": 1,
            "x <think></think> y <answer></answer> z": 1,
            "<answer>b</answer><think>a</think>": 0,
            "<think>a</think>": 0,
            "<think>a</think><answer>b</answer></answer>": 0,
            "<think>a<answer></think>b</answer>": 0,
            "": 0,
        }
        assert score([sample(text) for text in texts]) == list(texts.values())

    def test_length(self) -> None:
        """DAPO's eq. 13 with L_max 10 and L_cache 4: 0 up to 6, -1/4 at 7, -1 at 10 and beyond."""
        score = builtin.length(10, 4)
        found = score([sample("", tokens=n) for n in (1, 6, 7, 8, 9, 10, 11)])
        assert found == [0, 0, -0.25, -0.5, -0.75, -1, -1]
        with pytest.raises(ValueError, match="margin_tokens is 5, must be in 1"):
            builtin.length(4, 5)

    def test_diversity(self) -> None:
        """Pairs of words: alone 1; the same text 0; half of the others' the mean over them."""
        score = builtin.diversity(2)
        texts = ["a b c", "a b c", "a b d"]
        # {ab, bc}, {ab, bc}, {ab, bd}: overlaps 1 and 1/3
        assert score([sample(text) for text in texts]) == pytest.approx([1 - 2 / 3, 1 - 2 / 3, 1 - 1 / 3])
        assert score([sample("a b", group=0), sample("a b", group=1)]) == [1, 1]
        assert score([sample("a"), sample("")]) == [0, 0]

    def test_regex(self) -> None:
        assert builtin.regex("[0-9]+$", 1.0)([sample("x 12"), sample("12 x")]) == [1, 0]
        with pytest.raises(ValueError, match="no regular expression"):
            builtin.regex("(", 1.0)

    def test_a_regex_cannot_hang(self) -> None:
        """Catastrophic backtracking ends at the limit, with what to do."""
        with pytest.raises(TimeoutError, match="without nested repetition"):
            builtin.regex("(a|aa)+(b|bb)+c(?=d)|((a+)+)+z", 0.05)([sample("a" * 5000 + "b")])


class TestUser:
    """One's own function."""

    def test_a_file(self, tmp_path: Path) -> None:
        """It gets prompts, completions and every column of the data by name."""
        (tmp_path / "mine.py").write_text(
            "def count(prompts, completions, answer, **rest):\n    return [len(c) + a for c, a in zip(completions, answer)]\n"
        )
        assert user.reward(f"{tmp_path}/mine.py:count")([sample("ab"), sample("a", answer=1)]) == [44, 2]

    def test_only_accepted_arguments_are_passed(self, tmp_path: Path) -> None:
        """A function may name fewer columns than there are, or take all by keyword; what it needs is known."""
        (tmp_path / "mine.py").write_text(
            "def few(completions, answer=0): return answer\n"
            "def every(completions, **rest): return [len(rest)] * len(completions)\n"
            "class Made:\n    def __call__(self, completions, answer): return answer\n"
            "made = Made()\n"
        )
        samples = [sample("a", answer=1), sample("b", answer=2)]
        few, every, made = (user.reward(f"{tmp_path}/mine.py:{name}") for name in ("few", "every", "made"))
        assert few(samples) == made(samples) == [1, 2]
        assert every(samples) == [3, 3]  # prompts, and the columns prompt and answer of these rows
        assert isinstance(few, user.Own)
        assert isinstance(made, user.Own)
        assert (few.needed, made.needed) == (set(), {"answer"})

    def test_an_import_path(self) -> None:
        assert user.load("statistics:mean")([1, 3]) == 2

    @pytest.mark.parametrize(
        ("where", "words"),
        [
            ("nowhere", "must be 'package.module:function'"),
            ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
            ("./none.py:f", "there is no file"),
            ("statistics:maen", "has no function 'maen'"),
        ],
    )
    def test_what_cannot_be_found(self, where: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            user.load(where)

    def test_a_file_named_like_a_module_is_pointed_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module of the current folder is not importable by the installed command; its file is."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own_reward.py").write_text("")
        with pytest.raises(ValueError, match=r"write '\./own_reward\.py:f'"):
            user.load("own_reward:f")


class TestCombination:
    """Columns, weights and blame."""

    def test_columns_and_weights(self) -> None:
        """Accuracy's column is known for filters; the sum is weighted."""
        chosen = combine.functions(
            [
                sections.Accuracy(name="accuracy"),
                sections.Length(name="length", max_tokens=10, margin_tokens=5, weight=0.5),
            ]
        )
        rewards = combine.score(chosen, [sample("42", tokens=10), sample("1", tokens=5)], 2)
        assert rewards.values.tolist() == [[1, -1], [0, 0]]
        assert rewards.total().tolist() == [0.5, 0]
        assert (rewards.accuracy, rewards.group_size) == (0, 2)

    def test_accuracy_is_the_builtin_one(self, tmp_path: Path) -> None:
        """One's own function of that name is not taken for it, wherever it stands."""
        (tmp_path / "mine.py").write_text("def accuracy(completions): return [7.0] * len(completions)\n")
        own = sections.User(name="user", function=f"{tmp_path}/mine.py:accuracy")
        for chosen, place in (([own], None), ([own, sections.Accuracy(name="accuracy")], 1)):
            assert combine.score(combine.functions(chosen), [sample("42")], 1).accuracy == place

    def test_two_of_a_kind_have_two_names(self) -> None:
        pattern = {"name": "regex", "pattern": "a"}
        chosen = combine.functions([sections.Regex.model_validate(pattern), sections.Regex.model_validate(pattern)])
        assert [one.name for one in chosen] == ["regex", "regex#2"]

    @pytest.mark.parametrize(
        ("score", "words"),
        [
            (lambda _: 1 / 0, "reward 'f' raised ZeroDivisionError"),
            (lambda s: [1.0] * (len(s) - 1), "gave 1 values, must be 2"),
            (lambda s: ["x"] * len(s), "gave 'x' of type str, must be a number .*completion 'first'"),
            (lambda s: ["1"] * len(s), "gave '1' of type str, must be a number"),
            (lambda s: "1" * len(s), "gave '11' of type str, must be a list with one number a completion"),
            (lambda s: dict.fromkeys(range(len(s))), "of type dict, must be a list with one number a completion"),
            (lambda _: None, "gave None of type NoneType, must be a list with one number a completion"),
            (lambda _: 1.0, "gave 1.0 of type float, must be a list with one number a completion"),
            (lambda s: [1.0, float("inf")][: len(s)], "gave inf, must be finite"),
            (lambda s: [1.0, float("nan")][: len(s)], "set unscored = true if NaN means"),
            (lambda s: [1.0, None][: len(s)], "gave nan"),
        ],
        ids=["raises", "count", "type", "numeral", "text", "mapping", "nothing", "scalar", "inf", "nan", "none"],
    )
    def test_the_function_and_the_sample_are_named(self, score: Any, words: str) -> None:
        """Whatever goes wrong, the message says in which function, and on which completion where it can be known."""
        with pytest.raises(RewardError, match=words):
            combine.column(Function("f", 1.0, score), [sample("first"), sample("second")])

    def test_the_sample_that_raises_is_found(self) -> None:
        def picky(samples: Any) -> list[float]:
            return [float(s.completion) for s in samples]

        with pytest.raises(RewardError, match="completion 'oops'"):
            combine.column(Function("f", 1.0, picky), [sample("1"), sample("oops")])

    def test_nan_where_it_is_declared(self) -> None:
        found = combine.column(Function("f", 1.0, lambda s: [None, 2.0], unscored=True), [sample("a"), sample("b")])
        assert np.isnan(found[0])
        assert found[1] == 2


HARD = "(a|aa)+(b|bb)+c(?=d)|((a+)+)+z"
KEYS: list[tuple[str, dict[str, Any], str, Any, list[Sample]]] = [
    ("accuracy", {}, "weight", 3.0, [sample("42")]),
    ("format", {"tags": ["a"]}, "tags", ["b"], [sample("<a></a>")]),
    ("length", {"max_tokens": 10, "margin_tokens": 5}, "max_tokens", 12, [sample("", tokens=9)]),
    ("length", {"max_tokens": 10, "margin_tokens": 5}, "margin_tokens", 8, [sample("", tokens=9)]),
    ("diversity", {"words": 2}, "words", 1, [sample("a b"), sample("b a")]),
    ("regex", {"pattern": "a"}, "pattern", "b", [sample("a")]),
    ("regex", {"pattern": HARD, "limit_seconds": 0.02}, "limit_seconds", 0.04, [sample("a" * 5000 + "b")]),
    ("user", {"function": "own.py:one"}, "function", "own.py:two", [sample("a")]),
    ("user", {"function": "own.py:nan"}, "unscored", True, [sample("a")]),
]


class TestKeys:
    """Every key of every reward function has an effect."""

    @pytest.mark.parametrize(("name", "given", "key", "value", "samples"), KEYS, ids=[f"{k[0]}.{k[2]}" for k in KEYS])
    def test_a_key_has_an_effect(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        given: dict[str, Any],
        key: str,
        value: Any,
        samples: list[Sample],
    ) -> None:
        """The same function with this key alone changed scores, or fails, otherwise."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "own.py").write_text(
            "def one(completions): return [1.0]\ndef two(completions): return [2.0]\ndef nan(completions): return [None]\n"
        )

        def seen(table: dict[str, Any]) -> str:
            one = sections.Rewards.model_validate({"functions": [{"name": name, **table}]}).functions
            try:
                return str(combine.score(combine.functions(one), samples, len(samples)).total())
            except RewardError as error:
                return str(error)

        assert seen(given) != seen({**given, key: value})

    def test_no_key_is_forgotten(self) -> None:
        """Every key is in the table, `weight`, which all have, once."""
        kinds = [getattr(sections, k) for k in ("Accuracy", "Format", "Length", "Diversity", "Regex", "User")]
        own = {(k.__name__.lower(), key) for k in kinds for key in k.model_fields if key not in {"name", "weight"}}
        assert own | {("accuracy", "weight")} == {(name, key) for name, _, key, _, _ in KEYS}
