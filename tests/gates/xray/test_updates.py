"""What is read of further updates: ratio, clip and KL; and of the optimizer and the sampler."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recordings import Made, Model, events, generated, lines, spread, write
from safetensors.numpy import load_file, save_file
from scenarios import LENGTHS, advantages, by_token, grpo, picture, row_mean, second

from gates.model import Array
from gates.xray.picture import Picture, read
from gates.xray.reading.reading import Reading


def of(shown: Picture, name: str) -> Reading:
    """Return a reading that must be there."""
    reading = shown.of(name)
    assert reading is not None, [each.name for each in shown.readings]
    return reading


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [3e-7, 8e-3], ids=["float32", "bfloat16"])
def test_rounding_changes_no_reading(noise: float, seed: int, tmp_path: Path) -> None:
    """With columns and gradient off by what a dtype rounds, everything is read as before, or cannot be told."""
    made = second(lines(LENGTHS), advantages(), beta=0.5, step=0.15, bounds=(0.8, 1.2))
    exact = picture(tmp_path / "exact", *made)
    for each in made:
        each.document = {"noise": 1.2 * noise}
    picture(tmp_path / "rough", *made)
    rng = np.random.default_rng(seed)
    for file in sorted((tmp_path / "rough").glob("*/*.safetensors")):
        save_file(
            {
                name: rough(array, noise, rng) if name in {"sketch", "gradient"} else array
                for name, array in load_file(file).items()
            },
            file,
        )
    shown = read(tmp_path / "rough").updates[-1]
    kinds = {reading.name: reading.kind for reading in exact.readings}
    assert all(reading.kind in {kinds[reading.name], "cannot tell"} for reading in shown.readings)
    assert of(shown, "KL").numbers["forms"] == ["k3"]
    assert of(shown, "KL").numbers["beta"] == pytest.approx(0.5, rel=10 * noise)
    assert of(shown, "second update").numbers["level"] == "token"


def rough(array: Array, noise: float, rng: np.random.Generator) -> Array:
    """Add noise, a share of each vector's length."""
    draw = rng.normal(size=array.shape)
    return array + noise * draw * np.linalg.norm(array, axis=-1, keepdims=True) / np.linalg.norm(
        draw, axis=-1, keepdims=True
    )


class TestRatio:
    """The second update of one rollout."""

    @pytest.mark.parametrize(
        ("ratio", "level", "kind"),
        [("token", "token", "read"), ("sequence", "row mean", "read"), ("none", "none", "attention")],
    )
    def test_the_level_of_the_ratio_is_read(self, ratio: str, level: str, kind: str, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, *second(lines(LENGTHS), advantages(), ratio=ratio)), "second update")
        assert (reading.kind, reading.numbers["level"]) == (kind, level)

    def test_clipped_tokens_are_counted_and_enclose_the_bounds(self, tmp_path: Path) -> None:
        shown = picture(tmp_path, *second(lines(LENGTHS), advantages(), bounds=(0.8, 1.2)))
        numbers = of(shown, "clip of the ratio").numbers
        assert numbers["unclipped_above"] <= 1.2 <= numbers["clipped_above"]
        assert numbers["clipped_below"] <= 0.8 <= numbers["unclipped_below"]
        assert of(shown, "completion").kind == "read"

    def test_a_maximum_in_place_of_the_minimum_needs_attention(self, tmp_path: Path) -> None:
        """max(r·A, clip(r)·A) switches tokens off on the other side."""
        reading = of(
            picture(tmp_path, *second(lines(LENGTHS), advantages(), bounds=(0.8, 1.2), maximum=True)),
            "clip of the ratio",
        )
        assert (reading.kind, reading.numbers["wrong"]) == ("attention", reading.numbers["tokens"])

    def test_a_policy_that_has_not_moved_cannot_tell(self, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, *second(lines(LENGTHS), advantages(), step=1e-9)), "second update")
        assert reading.kind == "cannot tell"

    def test_new_rows_have_no_second_update(self, tmp_path: Path) -> None:
        first = grpo()
        rows = lines(LENGTHS, seed=5)
        made = Made(
            first.model.moved(0.01 * np.ones(first.model.flat.size)),
            rows,
            spread(rows, row_mean(rows, advantages())),
            2,
        )
        assert picture(tmp_path, first, made).of("second update") is None

    def test_a_scored_old_policy_is_the_ratios(self, tmp_path: Path) -> None:
        """An update of stale rows: the old policy is what a pass without gradient gave."""
        rows = lines(LENGTHS)
        old = Model.drawn()
        now = old.moved(np.random.default_rng(9).normal(0.0, 0.06, old.flat.size))
        weights = row_mean(rows, advantages())

        def coefficient(i: int, t: int) -> float:
            k = len(rows[i].prompt) + t
            return float(weights[i] * np.exp(now.log_probs(rows[i].ids)[k] - old.log_probs(rows[i].ids)[k]))

        made = Made(
            now, rows, by_token(rows, coefficient), scored=[({"by": "trained model", "model": "M", "update": 0}, old)]
        )
        shown = picture(tmp_path, made)
        assert of(shown, "within rows").numbers["weights"] == "ratio"
        assert of(shown, "ratio").sentence.startswith("tokens weigh by their ratio to the weights before update 1")

    def test_clipped_tokens_of_stale_rows_are_no_hole_of_a_mask(self, tmp_path: Path) -> None:
        """The second of two minibatches: its rows were scored before the first update, and no earlier update had them."""
        rows = lines(LENGTHS)
        _, made = second(rows, advantages(), bounds=(0.8, 1.2))
        made.scored = [({"by": "trained model", "model": "M", "update": 0}, made.start or made.model)]
        made.number, made.start = 1, None
        shown = picture(tmp_path, made)
        assert of(shown, "completion").kind == "read"
        assert of(shown, "clip of the ratio").numbers["clipped_above"] >= 1.2
        assert of(shown, "between rows").numbers["way"] == "row mean"


class TestKL:
    """The KL in the loss."""

    @pytest.mark.parametrize("bounds", [(0.0, 99.0), (0.8, 1.2)], ids=["unclipped", "clipped"])
    @pytest.mark.parametrize("ratio", ["token", "none"])
    def test_beta_is_read(self, ratio: str, bounds: tuple[float, float], tmp_path: Path) -> None:
        made = second(lines(LENGTHS), advantages(), beta=0.5, step=0.15, ratio=ratio, bounds=bounds)
        reading = of(picture(tmp_path, *made), "KL")
        assert reading.kind == "read"
        assert reading.numbers["forms"] == ["k3"]
        assert reading.numbers["averaged"] == ["within rows"]
        assert reading.numbers["beta"] == pytest.approx(0.5, rel=1e-5)

    @pytest.mark.parametrize(
        ("form", "name"),
        [(lambda x: x, "k2"), (lambda x: np.exp(x) - 1.0, "k3 with policy and reference exchanged")],
        ids=["k2", "exchanged"],
    )
    def test_other_estimators_are_told_apart(self, form: Callable[[Array], Array], name: str, tmp_path: Path) -> None:
        made = second(lines(LENGTHS), advantages(), beta=0.5, step=0.15, form=form)
        assert of(picture(tmp_path, *made), "KL").numbers["forms"] == [name]

    @pytest.mark.parametrize("bounds", [(0.0, 99.0), (0.8, 1.2)], ids=["unclipped", "clipped"])
    def test_a_kl_that_the_ratio_weighs_is_told_from_k2(self, bounds: tuple[float, float], tmp_path: Path) -> None:
        """The gradient of ρ·k3 is ρ·x, which on-policy is that of k2."""
        made = second(lines(LENGTHS), advantages(), beta=0.5, step=0.15, form=lambda x: x, weighted=True, bounds=bounds)
        assert of(picture(tmp_path, *made), "KL").numbers["forms"] == ["k3 times the ratio"]

    def test_an_opposite_sign_needs_attention(self, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, *second(lines(LENGTHS), advantages(), beta=-0.5, step=0.15)), "KL")
        assert reading.kind == "attention"
        assert reading.sentence.startswith("the loss pushes away from the reference")

    def test_no_kl_is_said_with_the_beta_that_would_show(self, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, *second(lines(LENGTHS), advantages())), "KL")
        assert reading.sentence == (
            "no KL to the weights before update 1 by k1, k2 or k3 shows, of tokens or of the sums of rows"
        )
        assert reading.numbers["error"] < 1e-4

    def test_a_reference_that_differs_shows_at_the_first_update(self, tmp_path: Path) -> None:
        rows = lines(LENGTHS)
        policy = Model.drawn()
        reference = policy.moved(np.random.default_rng(9).normal(0.0, 0.1, policy.flat.size))
        weights = row_mean(rows, advantages())

        def coefficient(i: int, t: int) -> float:
            k = len(rows[i].prompt) + t
            x = policy.log_probs(rows[i].ids)[k] - reference.log_probs(rows[i].ids)[k]
            return float(weights[i] + 0.04 * (1.0 - np.exp(-x)) / rows[i].length / 8)

        who = {"by": "another model", "model": "M", "update": 0}
        reading = of(
            picture(tmp_path, Made(policy, rows, by_token(rows, coefficient), scored=[(who, reference)])), "KL"
        )
        assert reading.numbers["beta"] == pytest.approx(0.04, rel=1e-4)
        assert reading.numbers["references"] == ["another model"]

    def test_a_reference_that_equals_the_policy_cannot_tell(self, tmp_path: Path) -> None:
        made = grpo()
        made.scored = [({"by": "another model", "model": "M", "update": 0}, made.model)]
        assert of(picture(tmp_path, made), "KL").kind == "cannot tell"


def adam(flat: Array, gradient: Array, *, lr: float, decay: float, decoupled: bool, corrected: bool = True) -> Array:
    """The first update of Adam, as 1412.6980, algorithm 1, and 1711.05101, algorithm 2."""
    g = gradient if decoupled else gradient + decay * flat
    m, v = 0.1 * g, 0.001 * g * g
    m_hat, v_hat = (m / 0.1, v / 0.001) if corrected else (m, v)
    return np.asarray(flat - lr * m_hat / (np.sqrt(v_hat) + 1e-8) - (lr * decay * flat if decoupled else 0.0))


def rounded(values: Array, bits: int = 8) -> Array:
    """Round to a mantissa of so many bits: 8 for bfloat16."""
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent))


class TestOptimizer:
    """The arithmetic of the update."""

    SETTINGS: Mapping[str, Any] = {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}

    def made(self, name: str, **how: Any) -> Made:
        made = grpo()
        made.optimizer = (name, dict(self.SETTINGS))
        made.after = adam(
            made.model.flat, made.gradient(), **{"lr": 1e-3, "decay": 0.1, "decoupled": name == "AdamW", **how}
        )
        return made

    @pytest.mark.parametrize("name", ["Adam", "AdamW"])
    def test_adam_is_followed(self, name: str, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, self.made(name)), "update")
        assert (reading.kind, reading.sentence) == (
            "read",
            f"the update follows {name} with rate 0.001 and weight decay 0.1",
        )

    def test_state_of_earlier_updates_is_used(self, tmp_path: Path) -> None:
        """Adam's third update, from its moments before."""
        made = self.made("AdamW")
        g, flat = made.gradient(), made.model.flat
        state = {"exp_avg": 0.3 * g + 1e-3, "exp_avg_sq": 0.2 * g * g + 1e-7, "step": np.full(flat.size, 2.0)}
        m, v = 0.9 * state["exp_avg"] + 0.1 * g, 0.999 * state["exp_avg_sq"] + 0.001 * g * g
        update = m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.999**3)) + 1e-8)
        made.state, made.after = state, flat * (1 - 1e-4) - 1e-3 * update
        assert of(picture(tmp_path, made), "update").kind == "read"

    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ({"decoupled": False}, "it follows AdamW with the decay added to the gradient"),
            ({"decay": 0.0}, "it follows AdamW without weight decay"),
            ({"corrected": False}, "it follows AdamW without the correction of the bias"),
            ({"lr": 5e-4}, "with rate 0.0005, 0.5 times what is set"),
        ],
        ids=["coupled", "no decay", "uncorrected", "rate"],
    )
    def test_what_it_follows_instead_is_named(self, how: Mapping[str, Any], words: str, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, self.made("AdamW", **how)), "update")
        assert reading.kind == "attention"
        assert words in reading.sentence

    @pytest.mark.parametrize("kept", [True, False])
    def test_an_optimizer_that_is_made_anew_needs_attention(self, kept: bool, tmp_path: Path) -> None:
        """Moments are empty before the first update only."""
        first = self.made("AdamW")
        again = self.made("AdamW")
        assert first.after is not None
        again.model, again.number, again.after, again.start = Model(first.after), 2, None, first.model
        again.state = {
            "exp_avg": np.full(first.model.flat.size, 0.1 * kept),
            "step": np.full(first.model.flat.size, 1.0 * kept),
        }
        reading = picture(tmp_path, first, again).of("state")
        assert (reading is None) is kept
        assert reading is None or (reading.kind, "made anew" in reading.sentence) == ("attention", True)

    def test_momentum_of_sgd(self, tmp_path: Path) -> None:
        made = grpo()
        g, flat = made.gradient(), made.model.flat
        made.optimizer = ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True, "weight_decay": 0.01})
        made.state = {"momentum_buffer": 0.5 * g}
        wide = g + 0.01 * flat
        made.after = flat - 0.1 * (wide + 0.9 * (0.45 * g + wide))
        assert of(picture(tmp_path, made), "update").kind == "read"

    def test_other_optimizers_are_not_read(self, tmp_path: Path) -> None:
        made = grpo()
        made.optimizer = ("Adafactor", {"lr": 1e-3})
        reading = of(picture(tmp_path, made), "update")
        assert (reading.kind, reading.sentence) == ("cannot tell", "the arithmetic of Adafactor is not read")

    def test_a_rate_of_zero_needs_attention(self, tmp_path: Path) -> None:
        """A warm-up that begins at 0 wastes the first update."""
        made = grpo()
        made.optimizer, made.after = ("SGD", {"lr": 0.0}), made.model.flat
        assert "learning rate of SGD is 0" in of(picture(tmp_path, made), "update").sentence

    def test_half_precision_rounds_updates_away(self, tmp_path: Path) -> None:
        made = grpo()
        made.model = Model(rounded(made.model.flat))
        made.after = rounded(made.model.flat - 1e-4 * np.sign(made.gradient()))
        made.document = {"dtype": "bfloat16", "noise": 8e-3}
        made.optimizer = ("AdamW", {"lr": 1e-4, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0})
        shown = picture(tmp_path, made)
        assert of(shown, "moved").sentence.endswith("their update was rounded away in bfloat16")
        assert of(shown, "update").kind == "read"
        assert of(shown, "prompt").kind == "read"

    def test_a_clip_of_the_norm_is_said(self, tmp_path: Path) -> None:
        made = grpo()
        norm = float(np.linalg.norm(made.gradient()))
        made.factor = 0.25
        made.document = {"clip": {"norm": norm, "limit": norm / 4}}
        assert of(picture(tmp_path, made), "clip of the norm").sentence.startswith("the gradient was scaled by 0.25")
        made.factor = 1.0
        assert of(picture(tmp_path / "b", made), "clip of the norm").kind == "attention"


class TestSampling:
    """What `generate` was asked."""

    def shown(self, folder: Path, request: Mapping[str, Any], document: Mapping[str, Any] | None = None) -> Picture:
        made = grpo()
        made.document = dict(document or {})
        write(folder / "p", made)
        events(folder / "p", generated(**request))
        return read(folder).updates[0]

    def test_neutral_sampling(self, tmp_path: Path) -> None:
        reading = of(self.shown(tmp_path, {}), "sampling")
        assert (reading.kind, reading.sentence) == ("read", "sampled at temperature 1, from the whole vocabulary")

    def test_restrictions_from_the_models_folder_show(self, tmp_path: Path) -> None:
        reading = of(self.shown(tmp_path, {"top_p": 0.95, "top_k": 20}), "sampling")
        assert reading.kind == "attention"
        assert reading.sentence.startswith("sampled at temperature 1 with top-p 0.95 and top-k 20")

    def test_a_default_of_the_library_is_called_one(self, tmp_path: Path) -> None:
        request = {"top_p": 0.95, "top_k": 50, "defaults": ["top_k"]}
        sentence = of(self.shown(tmp_path, request), "sampling").sentence
        assert sentence.startswith(
            "sampled at temperature 1 with top-p 0.95 and top-k 50 (the default of transformers)"
        )

    def test_sampling_that_nobody_saw_is_said(self, tmp_path: Path) -> None:
        reading = of(picture(tmp_path, grpo(), sampled=False), "sampling")
        assert (reading.kind, reading.sentence.partition(":")[0]) == (
            "cannot tell",
            "nobody saw how tokens were sampled",
        )

    def test_another_temperature_of_the_loss_shows(self, tmp_path: Path) -> None:
        document = {"temperature": 1.0, "temperatures": {"1.0": 1e-7, "0.7": 0.2}}
        reading = of(self.shown(tmp_path, {"temperature": 0.7}, document), "temperature")
        assert reading.sentence.startswith("the loss divides logits by 1, the sampler by 0.7")

    def test_the_same_temperature_says_nothing(self, tmp_path: Path) -> None:
        document = {"temperature": 0.7, "temperatures": {"1.0": 0.2, "0.7": 1e-7}}
        assert self.shown(tmp_path, {"temperature": 0.7}, document).of("temperature") is None
