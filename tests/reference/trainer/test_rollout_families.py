"""Every model family by every path: ragged prompts, early ends, rows that come and go."""

import functools
import itertools

import numpy as np
import pytest

from gates.families.rollout.prompts import encoded
from gates.subjects.mlx_trainer import subject
from gates_reference.trainer import model as models
from gates_reference.trainer.rollout import caches, probe

FAMILIES = ["qwen3", "llama", "qwen3_moe", "gemma3_text", "qwen3_next", "qwen3_5"]
PATHS = ["cached", "prefix", "batched"]
COMPILED = {"qwen3", "llama", "qwen3_moe"}  # whose layers all have a plain KVCache
LONG = "Ann has 3 apples and Bob has 25 more than she. How many have both of them in all?"
PROMPTS = [encoded(text) for text in ("7", "12+7=", LONG, "9*8")]
"""From one token to twice the window of the tiny Gemma."""
EOS = np.arange(20, 36)
BITS = 5e-4
"""Float32 logits by two routes: 3e-5 seen over families and both BLAS; what padding does to recurrent state is above 1."""


def _run(family: str, path: str, **changes: object) -> dict:
    keywords = {
        "model": {"family": family},
        "prompts": PROMPTS,
        "samples": 3,
        "max_tokens": 24,
        "temperature": 0.9,
        "top_p": 0.98,
        "seed": 5,
        "eos_ids": EOS,
        "record_logits": True,
        "path": path,
    }
    return subject.rollout(**keywords | changes)


@functools.cache
def _naive(family: str) -> dict:
    return _run(family, "naive")


def _same(slow: dict, fast: dict) -> None:
    for name in ("rows", "tokens", "lengths", "ended", "uniforms"):
        assert np.array_equal(slow[name], fast[name]), name
    assert np.abs(slow["logits"] - fast["logits"]).max() < BITS
    for name in ("model_logprobs", "tempered_logprobs", "behaviour_logprobs"):
        assert np.abs(slow[name] - fast[name]).max() < BITS, name


@pytest.mark.parametrize("family", FAMILIES)
class TestFamilies:
    """The same tokens by every path, in every family."""

    def test_the_rows_have_what_the_other_tests_need(self, family: str) -> None:
        """Prompts are of one token and more, rows end at several steps, and one goes on past Gemma's window."""
        run = _naive(family)
        lengths = [len(prompt) for prompt in PROMPTS]
        assert min(lengths) <= 2
        assert max(lengths) > 16
        assert len(set(run["lengths"].tolist())) >= 4
        assert run["ended"].any()
        assert run["lengths"].max() >= 16

    @pytest.mark.parametrize("path", PATHS)
    def test_path_equals_naive(self, family: str, path: str) -> None:
        """Tokens, ends and uniforms are equal, logits and log-probs to the noise of float32."""
        run = _run(family, path)
        assert run["path"] == path
        _same(_naive(family), run)

    def test_merged_prompts_equal_naive(self, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Prefilled one by one and merged, as a family is that nobody has shown to bear padding."""
        monkeypatch.setattr(caches, "LEFT_PADDED", frozenset())
        _same(_naive(family), _run(family, "batched"))

    def test_a_long_prefill_equals_naive(self, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the prompt's logits would be large the last token is fed alone, with the same result."""
        monkeypatch.setattr(caches, "WHOLE_LOGITS", 0)
        _same(_naive(family), _run(family, "batched"))

    def test_any_rows_in_any_order(self, family: str) -> None:
        """Rows alone and rows turned round draw what they draw in the whole table."""
        slow = _naive(family)
        for chosen, path in itertools.product(([7], [10, 3, 11, 0]), ("prefix", "batched")):
            part = _run(family, path, rows=slow["rows"][chosen])
            assert np.array_equal(part["tokens"], slow["tokens"][chosen])

    def test_compiled_equals_naive_or_says_why_not(self, family: str) -> None:
        """Families with plain key-value caches are compiled, the others say which caches they have."""
        if family in COMPILED:
            run = _run(family, "compiled")
            assert run["path"] == "compiled"
            _same(_naive(family), run)
            return
        with pytest.raises(NotImplementedError, match="Cache"):
            _run(family, "compiled")
        run = _run(family, "auto")
        assert run["path"] == "batched"
        assert "Cache" in run["reason"]
        _same(_naive(family), run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "samples"),
    [
        pytest.param("qwen3", 3, marks=pytest.mark.long),
        pytest.param("gemma3_text", 3, marks=pytest.mark.long),
        ("gemma3_text", 2),
    ],
)
def test_rows_of_280_tokens(family: str, samples: int) -> None:
    """Growing, compacted and rotating caches give the naive path's tokens to the end."""
    model = {"family": family, "vocab": 272}
    small = {"model": model, "prompts": [PROMPTS[0], PROMPTS[2]], "samples": samples, "max_tokens": 280}
    ends = {"eos_ids": np.arange(20, 22), "temperature": 1.0, "top_p": 1.0, "seed": 28}
    slow = _run(family, "naive", **small, **ends)
    assert slow["lengths"].max() > 200
    for path in [*PATHS, *(["compiled"] if family in COMPILED else [])]:
        _same(slow, _run(family, path, **small, **ends))


class TestUnbatchable:
    """mlx-lm's gemma2, whose attention broadcasts a mask of its rows against its heads."""

    def test_it_goes_prompt_by_prompt_and_says_why(self) -> None:
        """The default path is the one without padding, with the naive path's tokens."""
        run = _run("gemma2", "auto")
        assert run["path"] == "prefix"
        assert "gemma2" in run["reason"]
        _same(_naive("gemma2"), run)

    def test_as_many_rows_as_heads_are_not_mixed_up(self) -> None:
        """With two rows and two key-value heads MLX broadcasts without an error, and each head sees one row's mask."""
        two = {"samples": 1, "prompts": PROMPTS[1:3]}
        _same(_run("gemma2", "naive", **two), _run("gemma2", "auto", **two))

    @pytest.mark.parametrize("path", ["batched", "compiled"])
    def test_a_named_path_is_refused_with_the_reason(self, path: str) -> None:
        with pytest.raises(NotImplementedError, match=r"gemma2.*use path 'prefix'"):
            _run("gemma2", path)

    def test_wrong_logits_are_found_where_nothing_fails(self) -> None:
        """The probe has five rows; with five heads only the numbers show the mistake."""
        spec = {"family": "gemma2", "heads": 10, "kv_heads": 5, "hidden": 160}
        assert "other logits than alone" in probe.why_not(models.load(spec).model)

    @pytest.mark.parametrize("family", FAMILIES)
    def test_sound_families_pass(self, family: str) -> None:
        """No family that the other tests show to be right is refused."""
        assert probe.why_not(models.load({"family": family}).model) == ""


def test_a_cache_without_rows_is_decoded_row_by_row() -> None:
    """mlx-lm's deepseek_v41 has caches of its own that can be neither merged nor repeated."""
    run = _run("deepseek_v41", "auto")
    assert run["path"] == "cached"
    assert "LayerCache" in run["reason"]
    _same(_naive("deepseek_v41"), run)
    with pytest.raises(NotImplementedError, match="use path 'cached'"):
        _run("deepseek_v41", "prefix")


def test_a_model_that_never_called_its_base_class() -> None:
    """mlx-lm's recurrent_gemma lacks what `freeze` reads; it loads, and draws the same tokens by every path."""
    for path in PATHS:
        _same(_naive("recurrent_gemma"), _run("recurrent_gemma", path))


class TestPadding:
    """Why the families are listed by name."""

    def test_plain_left_padding_spoils_recurrent_state(self) -> None:
        """The control: pad a hybrid's prompt without telling its cache, and the logits are far off."""
        import mlx.core as mx  # noqa: PLC0415 - only here
        from mlx_lm.models.cache import make_prompt_cache  # noqa: PLC0415 - only here

        model = models.load({"family": "qwen3_next"}).model
        ids = np.arange(50, 60)
        alone = caches.alone(model, ids.astype(np.int32)).last
        padded = mx.array(np.concatenate([np.zeros(6, int), ids])[None].astype(np.int32))
        spoiled = model(padded, cache=make_prompt_cache(model))[:, -1]
        assert float(mx.abs(spoiled - alone).max()) > 0.1

    def test_the_shortest_prompt_of_a_batch_is_as_if_alone(self) -> None:
        """Logits after a left-padded prefill are those of each prompt alone, in every family that is listed."""
        prompts = [np.arange(50, 50 + n, dtype=np.int32) for n in (1, 4, 40)]
        for family in FAMILIES:
            model = models.load({"family": family}).model
            assert caches.family(model) in caches.LEFT_PADDED
            together = np.array(caches.together(model, prompts).last)
            for row, prompt in enumerate(prompts):
                assert np.abs(together[row] - np.array(caches.alone(model, prompt).last)[0]).max() < BITS
