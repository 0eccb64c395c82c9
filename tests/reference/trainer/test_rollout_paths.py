"""The door to the rollout paths, and what makes the fast ones fast: no restart, few compactions, one evaluation a step."""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map, tree_map_with_path
from mlx_lm.models import cache as mlx_caches

from gates_reference import sums
from gates_reference.oracle import sampling as oracle
from gates_reference.trainer import lora, rollout, sampling
from gates_reference.trainer import model as models
from gates_reference.trainer.rollout import (
    batched,
    cached,
    caches,
    compiled,
    decode,
    fixed,
    naive,
    prefix,
    sampler,
    table,
)

ADAPTER = {"rank": 2, "scale": 2.0, "seed": 1, "b_std": 0.1}
EOS = np.arange(20, 44)
BITS = 5e-4
"""Float32 logits of the tiny model by two routes, see test_rollout.py."""
WIDE = {"head_dim": 32}
"""A model whose heads a group of 32 divides."""
FAST = [cached, prefix, batched, compiled]


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    """Start and end without a compiled step."""
    fixed.forget()
    yield
    fixed.forget()


def _model(**spec: Any) -> Any:
    return models.load(spec).model


def _request(**changes: Any) -> table.Request:
    tokenizer = models.load({}).tokenizer
    texts = [row["prompt"] for row in sums.sums(4, 5, "worded")]
    keywords: dict[str, Any] = {
        "prompts": [np.array(tokenizer.encode(text), np.int32) for text in texts],
        "rows": np.array([[i, j] for i in range(5) for j in range(4)]),
        "samples": 4,
        "max_tokens": 12,
        "settings": sampling.Settings(0.8, 0.95),
        "eos_ids": EOS,
        "seed": 3,
        "record_logits": True,
    }
    return table.Request(**keywords | changes)


def _same(slow: table.Rollout, fast: table.Rollout) -> None:
    assert np.array_equal(slow.tokens, fast.tokens)
    assert np.array_equal(slow.lengths, fast.lengths)
    assert slow.logits is not None
    assert fast.logits is not None
    assert np.abs(slow.logits - fast.logits).max() < BITS


class TestDispatch:
    """Which path runs."""

    @pytest.mark.parametrize("path", sorted(rollout.PATHS))
    def test_a_named_path_runs(self, path: str) -> None:
        """The table says which path ran, and no reason."""
        run = rollout.run(_model(), _request(), path)
        assert (run.path, run.reason) == (path, "")

    def test_auto_compiles(self) -> None:
        run = rollout.run(_model(), _request())
        assert (run.path, run.reason) == ("compiled", "")

    def test_unknown_path(self) -> None:
        with pytest.raises(ValueError, match="prefix"):
            rollout.run(_model(), _request(), "vllm")

    def test_without_a_compiler(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without g++ the batched path runs, with the same tokens, and the reason is written down."""
        monkeypatch.setattr(compiled.shutil, "which", lambda name: None if name == "g++" else "found")
        run = rollout.run(_model(), _request())
        assert run.path == "batched"
        assert "g++" in run.reason
        _same(naive.rollout(_model(), _request()), run)

    def test_a_compiler_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A compilation that fails at the first evaluation falls back too; any other error does not."""
        for message, falls_back in (
            ("[Compile::eval_cpu] Failed to compile function f", True),
            ("out of memory", False),
        ):

            def raises(*_: Any, text: str = message) -> Any:
                raise RuntimeError(text)

            monkeypatch.setattr(fixed, "compile_step", lambda _, step=raises: step)
            fixed.forget()
            if falls_back:
                run = rollout.run(_model(), _request())
                assert run.path == "batched"
                assert "Failed to compile" in run.reason
            else:
                with pytest.raises(RuntimeError, match="memory"):
                    rollout.run(_model(), _request())

    def test_an_unknown_family_is_merged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A model type that nobody has shown to bear padding is neither compiled nor padded."""
        monkeypatch.setattr(caches, "LEFT_PADDED", frozenset())
        monkeypatch.setattr(caches, "together", lambda *_: pytest.fail("padded"))
        run = rollout.run(_model(), _request())
        assert run.path == "batched"
        assert "qwen3" in run.reason
        _same(naive.rollout(_model(), _request()), run)

    def test_caches_that_cannot_be_merged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A cache without `merge` is rolled out group by group."""
        monkeypatch.setattr(caches, "unmergeable", lambda _: ["ChunkedKVCache"])
        run = rollout.run(_model(), _request())
        assert run.path == "prefix"
        assert "ChunkedKVCache" in run.reason
        _same(naive.rollout(_model(), _request()), run)

    @pytest.mark.parametrize("path", FAST, ids=lambda path: path.__name__.rpartition(".")[2])
    def test_no_rows(self, path: Any) -> None:
        """An empty choice of rows is an empty table by every path."""
        assert path.rollout(_model(), _request(rows=np.zeros((0, 2), int))).tokens.shape == (0, 12)


class TestLimits:
    """Rows with lengths of their own."""

    @pytest.mark.parametrize("path", sorted(rollout.PATHS))
    def test_a_row_stops_at_its_limit(self, path: str) -> None:
        """Tokens are those of the whole row, cut; a row cut by its limit has not ended."""
        limits = np.arange(20) % 12 + 1
        whole = naive.rollout(_model(), _request())
        run = rollout.run(_model(), _request(limits=limits), path)
        assert run.path == path
        assert run.lengths.tolist() == np.minimum(whole.lengths, limits).tolist()
        inside = np.arange(12) < run.lengths[:, None]
        assert (run.tokens == np.where(inside, whole.tokens, -1)).all()
        assert run.ended.tolist() == (whole.ended & (whole.lengths <= limits)).tolist()

    @pytest.mark.parametrize("limits", [[0], [13], [1, 2]], ids=str)
    def test_limits_outside_the_table(self, limits: list[int]) -> None:
        """One limit for each row, from 1 to `max_tokens`."""
        with pytest.raises(ValueError, match="limits"):
            _request(rows=np.array([[0, 0]]), limits=np.array(limits))


class TestUpdates:
    """Weights that change between two rollouts."""

    @pytest.mark.parametrize("path", FAST, ids=lambda path: path.__name__.rpartition(".")[2])
    def test_an_update_in_place_reaches_the_next_rollout(self, path: Any) -> None:
        """After every weight has moved, as an optimizer moves them, tokens are those of the naive path with the new ones."""
        model = _model()
        with lora.attached(model, ADAPTER):
            before = path.rollout(model, _request())
            model.update(tree_map_with_path(lambda name, x: x * 1.5 if "lora" in name else x, model.parameters()))
            want = naive.rollout(model, _request())
            assert (want.tokens != before.tokens).any(axis=1).mean() > 0.5
            _same(want, path.rollout(model, _request()))

    def test_an_update_compiles_nothing_anew(self) -> None:
        """The compiled step survives an update, for weights are its inputs."""
        model = _model()
        with lora.attached(model, ADAPTER):
            first = fixed.compiled_step(model)
            model.update(tree_map(lambda x: x + 0, model.parameters()))
            assert fixed.compiled_step(model) is first

    def test_a_number_that_is_no_weight_compiles_anew(self) -> None:
        """A LoRA scale is baked into a compiled step; a changed one gives another step and the right tokens."""
        model = _model()
        with lora.attached(model, ADAPTER):
            compiled.rollout(model, _request())
            for layer in lora.adapters(model).values():
                layer.scale = 0.25
            run = compiled.rollout(model, _request())
            assert run.path == "compiled"
            _same(naive.rollout(model, _request()), run)

    def test_adapters_off_is_the_base(self) -> None:
        """A rollout under `adapters_off` draws the base's tokens although the compiled step knew the adapters."""
        model = _model()
        want = naive.rollout(model, _request())
        with lora.attached(model, ADAPTER):
            assert not np.array_equal(compiled.rollout(model, _request()).tokens, want.tokens)
            with lora.adapters_off(model):
                _same(want, compiled.rollout(model, _request()))


class _Counted:
    """A model that counts its calls and the columns of each."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.calls: list[tuple[int, ...]] = []

    def __call__(self, ids: mx.array, cache: Any = None) -> Any:
        self.calls.append(tuple(ids.shape))
        return self._model(ids, cache=cache)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


class TestWork:
    """How often the model is called, and on how many rows."""

    def test_one_prefill_and_one_call_a_step(self) -> None:
        """Rows that end early cause no restart: a prefill of the prompts, then one call for each further token."""
        model = _Counted(_model())
        run = batched.rollout(model, _request())
        assert 0 < run.ended.sum() < 20
        assert model.calls[0][0] == 5  # every prompt once, whatever its samples
        assert [columns for _, columns in model.calls[1:]] == [1] * (run.lengths.max() - 1)

    def test_rows_are_compacted_when_a_quarter_is_idle(self) -> None:
        """A batch shrinks, never grows, and only when at most three quarters of it live."""
        model = _Counted(_model())
        run = batched.rollout(model, _request())
        widths = [rows for rows, _ in model.calls[1:]]
        assert len(set(widths)) >= 3
        for t, (width, following) in enumerate(zip([20, *widths], widths, strict=False)):
            live = int((run.lengths > t + 1).sum())
            assert live <= following <= width
            assert following == (live if live <= decode.SPARSE * width else width)

    @pytest.mark.parametrize("path", [batched, compiled, prefix], ids=["batched", "compiled", "prefix"])
    def test_one_evaluation_a_step(self, path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        """The host asks the device once for each step, and dispatches the next before it writes the last one down."""
        events: list[str] = []
        monkeypatch.setattr(sampler, "host", lambda x, host=sampler.host: events.append("read") or host(x))
        monkeypatch.setattr(decode.mx, "async_eval", lambda x, send=mx.async_eval: events.append("send") or send(x))
        record = table.Rollout.record
        monkeypatch.setattr(table.Rollout, "record", lambda *a, **k: events.append("write") or record(*a, **k))
        monkeypatch.setattr(decode.mx, "eval", lambda *_: pytest.fail("another evaluation"))
        run = path.rollout(_model(), _request(rows=np.array([[1, j] for j in range(4)]), record_logits=False))
        steps = int(run.lengths.max())
        assert events == ["send", *["read", "send", "write"] * (steps - 1), "read", "write"]

    def test_logits_are_read_where_they_lie(self) -> None:
        """The host's view of float32 logits owns no memory; bfloat16 is converted."""
        x = mx.ones((3, 5))
        assert not sampler.host(x).flags.owndata
        assert sampler.host(x.astype(mx.bfloat16)).dtype == np.float32

    def test_batch_sizes_of_the_compiled_step(self) -> None:
        """A bucket holds its rows, less than twice as many; beyond eight it is a power of two."""
        width = compiled.Compiled.width
        sizes = [width(None, live) for live in range(1, 513)]  # type: ignore[arg-type]  # no state is read
        assert all(live <= size < 2 * live for live, size in enumerate(sizes, 1))
        assert sorted(set(sizes)) == [1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512]

    def test_a_step_is_built_before_its_tokens_are_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every graph but those after a compaction is built ahead, and one that is dropped leaves no trace."""
        model, request = _model(), _request()
        prefilled = caches.together(model, request.prompts)
        early, late = (compiled.Compiled(model, prefilled, np.array([0, 0, 1])) for _ in range(2))
        built: list[int] = []
        make = compiled.Compiled._built
        monkeypatch.setattr(compiled.Compiled, "_built", lambda self: built.append(id(self)) or make(self))
        for tokens in ([5, 6, 7], [8, 9, 10]):
            early.ahead()
            count = len(built)
            ours = np.array(early.step(np.array(tokens, np.int32)))
            assert len(built) == count
            np.testing.assert_array_equal(ours, np.array(late.step(np.array(tokens, np.int32))))
        early.ahead()
        for steps in (early, late):
            steps.keep(np.array([2, 0]))
        last = [np.array(steps.step(np.array([1, 2], np.int32))) for steps in (early, late)]
        np.testing.assert_array_equal(*last)

    def test_buffers_grow_when_they_are_full(self) -> None:
        """No column that attention pays for is more than a block beyond the last one that is written."""
        model, request = _model(), _request()
        prefilled = caches.together(model, request.prompts)
        steps = compiled.Compiled(model, prefilled, np.array([0, 0, 1]))
        start = max(map(len, request.prompts))
        for position in range(start, start + 2 * compiled.COLUMNS):
            assert steps.position == position
            steps.step(np.zeros(3, np.int32))
            columns = steps.keys[0].shape[2]
            assert columns % compiled.COLUMNS == 0
            assert position < columns <= position + compiled.COLUMNS

    def test_a_compiled_step_is_used_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another round of rollouts with prompts of other lengths compiles nothing anew."""
        made: list[Any] = []
        monkeypatch.setattr(fixed, "compile_step", lambda m, make=fixed.compile_step: made.append(m) or make(m))
        for round_ in range(3):
            compiled.rollout(_model(), _request(round=round_))
        assert len(made) == 1


class TestQuantised:
    """Keys and values in 8 or 4 bits."""

    @pytest.mark.parametrize("path", ["cached", "prefix"])
    @pytest.mark.parametrize("bits", [8, 4])
    def test_tokens_are_right_for_their_own_logits(self, path: str, bits: int) -> None:
        """Every token is one that the oracle draws from the path's logits, which are not the unquantised ones."""
        request = _request(kv_bits=bits, settings=sampling.Settings())
        run, exact = rollout.run(_model(**WIDE), request, path), naive.rollout(_model(**WIDE), _request())
        assert run.logits is not None
        assert exact.logits is not None
        row, step = np.nonzero(run.tokens >= 0)
        keywords = {
            "order": "hf",
            "temperature": 1.0,
            "top_k": 0,
            "top_p": 1.0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
        }
        rest = {"xtc_probability": 0.0, "xtc_threshold": 0.0, "xtc_coin": None, "history": None}
        logits = run.logits[row, step]
        right = oracle.admissible(run.tokens[row, step], logits, run.uniforms[row, step], 2.0**-40, **keywords, **rest)
        assert right.all()
        second = (run.lengths > 1) & (exact.lengths > 1) & (run.tokens[:, 0] == exact.tokens[:, 0])
        apart = np.abs(run.logits[second, 1] - exact.logits[second, 1]).max()
        assert 1e-4 < apart < {8: 0.5, 4: 5.0}[bits]

    def test_auto_takes_the_prefix_path(self) -> None:
        """Quantised caches cannot be merged into a ragged batch."""
        run = rollout.run(_model(**WIDE), _request(kv_bits=8))
        assert run.path == "prefix"
        assert "quantised" in run.reason

    def test_rows_do_not_depend_on_the_group(self) -> None:
        """A row alone draws what it draws among its group."""
        whole = rollout.run(_model(**WIDE), _request(kv_bits=8))
        alone = rollout.run(_model(**WIDE), _request(kv_bits=8, rows=np.array([[2, 1]])))
        assert np.array_equal(alone.tokens[0], whole.tokens[9])

    @pytest.mark.parametrize(
        ("path", "changes", "spec", "error"),
        [
            ("naive", {"kv_bits": 8}, WIDE, NotImplementedError),
            ("batched", {"kv_bits": 8}, WIDE, NotImplementedError),
            ("prefix", {"kv_bits": 8}, {}, ValueError),
        ],
        ids=["naive", "batched", "narrow-heads"],
    )
    def test_what_cannot_be_quantised_is_said(
        self, path: str, changes: dict[str, int], spec: dict[str, Any], error: type[Exception]
    ) -> None:
        """Paths without quantised caches, and heads that 32 does not divide."""
        with pytest.raises(error, match=r"kv_bits|quantised"):
            rollout.run(_model(**spec), _request(**changes), path)

    def test_other_bits(self) -> None:
        """Only 8 and 4 are there."""
        with pytest.raises(ValueError, match="kv_bits"):
            _request(kv_bits=3)

    def test_recurrent_state_is_not_quantised(self) -> None:
        """A hybrid's attention is quantised, its recurrent state is not, and its tokens come out."""
        run = rollout.run(_model(family="qwen3_next", **WIDE), _request(kv_bits=8), "prefix")
        assert (run.lengths > 0).all()

    def test_a_model_without_a_plain_cache_is_said(self) -> None:
        """Where there are windows only, nothing would be in fewer bits."""
        windows = caches.Prefilled([mlx_caches.RotatingKVCache(8)], mx.zeros((1, 2)), np.zeros(1, np.int64))
        with pytest.raises(NotImplementedError, match="no plain KVCache"):
            caches.stored(windows, 8)

    def test_windows_are_not_quantised(self) -> None:
        """A sliding window's cache stays as it is; the full attention beside it is quantised, and ragged prompts come out."""
        run = rollout.run(_model(family="gemma3_text", **WIDE), _request(kv_bits=8))
        exact = rollout.run(_model(family="gemma3_text", **WIDE), _request(), "prefix")
        assert (run.lengths > 0).all()
        assert run.path == "prefix"
        assert not np.array_equal(run.behaviour, exact.behaviour)
