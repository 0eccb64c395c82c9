"""`gates_reference.trainer.warmup`: a model that half knows a few sums, and the same one for the same recipe."""

from pathlib import Path

import mlx.core as mx
import mlx_lm
import pytest
import runs

from gates_reference import tiny
from gates_reference.trainer import model as models
from gates_reference.trainer import warmup
from gates_reference.trainer.loop import prepare

SHORT = warmup.Recipe(problems=8, steps=3, rows=4)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of models."""
    monkeypatch.setenv("GATES_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_problems_are_there_once_and_a_prefix() -> None:
    many = warmup.problems(warmup.Recipe(problems=100))
    assert len({row["prompt"] for row in many}) == 100
    assert warmup.problems(warmup.Recipe(problems=7)) == many[:7]


@pytest.mark.usefixtures("cache")
class TestBuild:
    """A folder that mlx-lm loads."""

    def test_loss_falls_and_only_the_weights_differ_from_tiny(self) -> None:
        """Thirty steps on eight sums halve the loss."""
        losses: list[float] = []
        folder = warmup.build(
            warmup.Recipe(problems=8, steps=30, rows=8, wrong=0.0), lambda _, loss: losses.append(loss)
        )
        assert len(losses) == 30
        assert losses[-1] < losses[0] / 2
        model, tokenizer = mlx_lm.load(str(folder))[:2]
        assert model(mx.array([tokenizer.encode("1+2=")])).shape[-1] == 320
        assert tiny.model_hash(folder) != tiny.model_hash(tiny.build(warmup.MODEL))

    def test_same_recipe_same_bytes(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Built twice, in two caches."""
        first = warmup.build(SHORT)
        monkeypatch.setenv("GATES_CACHE_DIR", str(cache / "other"))
        second = warmup.build(SHORT)
        assert first != second
        assert tiny.model_hash(first) == tiny.model_hash(second)

    def test_seed_counts(self) -> None:
        first = warmup.build(SHORT)
        second = warmup.build(warmup.Recipe(problems=8, steps=3, rows=4, seed=1))
        assert tiny.model_hash(first) != tiny.model_hash(second)

    def test_nothing_half_built_stays(self, cache: Path) -> None:
        """An interrupt in the middle leaves no folder."""

        def interrupt(step: int, loss: float) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            warmup.build(SHORT, interrupt)
        assert not [path for path in (cache / "models").iterdir() if path.name.startswith("warm-") and path.is_dir()]

    @pytest.mark.parametrize(
        ("wrong", "words"),
        [
            ({"steps": 0}, "problems, steps, rows are 64, 0, 64, must be >= 1"),
            ({"wrong": 1.0}, r"wrong is 1.0, must be in \[0, 1\)"),
        ],
        ids=["steps", "wrong"],
    )
    def test_impossible_recipes(self, wrong: dict[str, float], words: str) -> None:
        with pytest.raises(ValueError, match=words):
            warmup.Recipe(**wrong)  # type: ignore[arg-type]  # of the wrong value on purpose

    def test_first_run_says_what_the_warm_up_is_for(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """On stderr: the purpose, the first step and the last; a second run finds the model, and a silent run says nothing."""
        warm = {"model": {"tiny": {"hidden": 32}, "warmup": {"problems": 8, "steps": 3, "rows": 4}}}
        config = runs.config(tmp_path / "run", **warm, output={"console": True})
        prepare.load(config)
        purpose, first, last = capsys.readouterr().err.splitlines()
        assert "3 supervised steps come first, because a model with random weights earns no reward" in purpose
        assert first.startswith("warm-up step 1 of 3: loss ")
        assert last.startswith("warm-up step 3 of 3: loss ")
        prepare.load(config)
        prepare.load(runs.config(tmp_path / "run", model={**warm["model"], "warmup": {"problems": 8, "steps": 2}}))
        assert capsys.readouterr().err == ""

    def test_a_spec_with_a_warm_up_is_the_recipes_model(self) -> None:
        """`model.load` builds it, from the same cache; a key that no recipe has is named."""
        loaded = models.load({"warmup": {"problems": 8, "steps": 3, "rows": 4}, **warmup.MODEL})
        assert loaded.path == str(warmup.build(SHORT))
        with pytest.raises(ValueError, match=r"unknown keys \['step'\] in 'warmup', known are \['data_seed'"):
            models.load({"warmup": {"step": 3}})
