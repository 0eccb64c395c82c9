"""The forward passes of `gates.replay` against transformers in float64, in the environment of a peer."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from gates.replay.forward import load
from gates.subjects.peers import environments
from gates_reference import tiny

SCRIPT = Path(__file__).parent / "scripts" / "transformers_in_float64.py"
FAMILIES = (
    *(
        "qwen3",
        "llama",
        "qwen2",
        "cohere",
        "gemma2",
        "lfm2",
    ),  # gemma3_text: mlx-lm rounds its embedding factor to bfloat16
    *("qwen3_moe", "mixtral", "olmoe", "qwen3_next"),
)


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(tmp_path: Path, family: str) -> None:
    """Two programs that share nothing agree to the rounding of float64."""
    python = environments.environment("trl").python
    if not python.exists():
        pytest.skip("`gates peers sync trl` makes the environment with transformers and torch")
    ids = np.random.default_rng(0).integers(3, 270, (3, 12))
    np.save(tmp_path / "ids.npy", ids)
    folder = tiny.build({"family": family, "seed": 11, "vocab": 272})
    command = [python, SCRIPT, folder, tmp_path / "model", tmp_path / "ids.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    want = np.load(tmp_path / "model" / "logits.npy")
    assert np.abs(load(tmp_path / "model").logits(ids) - want).max() < 1e-13 * np.abs(want).max()
    assert np.ptp(want) > 0.1
