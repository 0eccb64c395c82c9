"""The recorder for PyTorch, on a script that knows nothing of it; TRL's environment lends its interpreter."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scripted import run_torch

SCRIPT = Path(__file__).parent / "scripts" / "torch_grpo.py"
PROMPT = 3
LENGTHS = (4, 6, 5, 3)
ADVANTAGES = (0.5, -0.5, -0.375, 0.375)


def recorded(folder: Path, *arguments: str, **options: object) -> list[tuple[dict[str, object], dict[str, np.ndarray]]]:
    """Run the script under the recorder and return its updates."""
    run_torch(folder, [str(SCRIPT), *arguments], **options)
    files = sorted(folder.glob("*/update-*.json"))
    return [(json.loads(file.read_text()), load_file(file.with_suffix(".safetensors"))) for file in files]


def events(folder: Path, name: str) -> list[dict[str, object]]:
    """Return the events of one kind."""
    (file,) = folder.glob("*/events.jsonl")
    return [event for line in file.read_text().splitlines() if (event := json.loads(line))["event"] == name]


def coefficients(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, float]:
    """Return the least squares of the sketch, and the share that is left."""
    solution, *_ = np.linalg.lstsq(arrays["sketch"].T, arrays["gradient"], rcond=1e-12)
    left = np.linalg.norm(arrays["gradient"] - solution @ arrays["sketch"])
    return solution, float(left / np.linalg.norm(arrays["gradient"]))


def expected(row: int, token: int) -> float:
    """Return the coefficient of a token in the first update: −A/(rows · length) inside of its completion."""
    inside = PROMPT <= token < PROMPT + LENGTHS[row]
    return -ADVANTAGES[row] / (4 * LENGTHS[row]) if inside else 0.0


@pytest.mark.slow
class TestRecorder:
    """What stands in the files that the script leaves."""

    def test_coefficients_are_those_of_the_definition(self, tmp_path: Path) -> None:
        """Each token of a completion has −A/(rows · length); prompts and what is after the end have 0."""
        (document, arrays), (second, _) = recorded(tmp_path)
        solution, left = coefficients(arrays)
        assert left < 1e-5
        for index, row in enumerate(document["rows"]):  # type: ignore[arg-type]
            assert row["prompt"] == PROMPT
            shared = {c for k, c in enumerate(row["columns"]) if k < PROMPT}
            for token, column in enumerate(row["columns"]):
                if column >= 0 and column not in shared:
                    assert abs(solution[column] - expected(index, token)) < 1e-5
        assert second["update"] == 2
        assert second["scorers"][0]["by"] == "trained model"  # type: ignore[index]

    def test_the_script_trains_as_without_it(self, tmp_path: Path) -> None:
        """Weights and random numbers are those of a run by itself."""
        (alone,) = run_torch(tmp_path / "alone", [str(SCRIPT)], recorder=False)
        (seen,) = run_torch(tmp_path / "seen", [str(SCRIPT)])
        assert alone.startswith("trained")
        assert seen == alone
        assert len(list((tmp_path / "seen").glob("*/update-*.json"))) == 2

    def test_an_entropy_bonus_needs_its_columns(self, tmp_path: Path) -> None:
        """Log-probs do not explain it, columns of the entropy do."""
        (document, arrays), _ = recorded(tmp_path, "entropy")
        assert [kind for kind, _ in document["kinds"]] == ["log_prob", "entropy"]  # type: ignore[attr-defined]
        assert document["tried"][0][1] > 1e-3  # type: ignore[index]
        assert coefficients(arrays)[1] < 1e-5

    def test_half_precision_brings_its_own_limit(self, tmp_path: Path) -> None:
        """What is left in bfloat16 is what a backward pass in bfloat16 adds."""
        (document, arrays), _ = recorded(tmp_path, "bfloat16")
        _, left = coefficients(arrays)
        assert document["dtype"] == "bfloat16"
        assert 1e-4 < left < 10 * document["noise"]  # type: ignore[operator]

    def test_notes_and_clipping_are_events(self, tmp_path: Path) -> None:
        """They stand beside the updates, as the script said and did them."""
        recorded(tmp_path)
        (note,) = events(tmp_path, "note")
        assert note["rewards"] == [1.0, 0.0, 0.25, 1.0]
        assert [event["limit"] for event in events(tmp_path, "clip")] == [100.0, 100.0]
        assert events(tmp_path, "end")[0]["updates"] == 2

    def test_too_large_is_said_before_it_is_computed(self, tmp_path: Path) -> None:
        """The estimate and the way out are an event, and the script ends as it would."""
        assert recorded(tmp_path, columns=5) == []
        (event,) = events(tmp_path, "too large")
        assert event["columns"] > 5  # type: ignore[operator]

    def test_some_parameters_explain_their_part(self, tmp_path: Path) -> None:
        """A fit to the head's parameters alone gives the same coefficients."""
        (document, arrays), _ = recorded(tmp_path, parameters=["head.*"])
        solution, left = coefficients(arrays)
        assert document["trained"]["tensors"] == 2  # type: ignore[index]
        assert left < 1e-5
        row = document["rows"][1]  # type: ignore[index]
        assert abs(solution[row["columns"][PROMPT + 2]] - expected(1, PROMPT + 2)) < 1e-5
