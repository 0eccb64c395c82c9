"""torch's own tensors, in an environment of a peer that has torch: it is too large for the development environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rlkernels
from gates.subjects.peers import environments

SCRIPT = Path(__file__).with_name("torch_tensors.py")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the script found."""
    for peer in environments.peers():
        environment = environments.environment(peer)
        if environment.ready and "torch" in environment.versions:
            folder = tmp_path_factory.mktemp("path")
            (folder / "rlkernels").symlink_to(Path(rlkernels.__file__).parent)  # one abi3 library for every Python
            done = subprocess.run(
                [str(environment.python), "-W", "ignore", str(SCRIPT)],
                env={**os.environ, "PYTHONPATH": str(folder)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            result: dict[str, Any] = json.loads(done.stdout)["found"]
            return result
    pytest.skip("no environment of a peer has torch: `gates peers list` shows them")


@pytest.mark.parametrize(
    ("case", "want"),
    [
        ("float32", ["float32", [0.5, -1, 0, -1]]),
        ("float64", ["float64", [0.5, -1, 0, -1]]),
        ("transposed", ["float32", [[0.5, 0], [-1, -1]]]),
        ("expanded", ["float32", [0.5, 0, -0.5, 1]]),
        ("mask", ["float32", [[0.5, -1], [0, -1]]]),
        ("lengths", ["float32", [[0.5, 0], [0, -1]]]),
        ("empty", ["float32", []]),
        ("detached parameter", ["float32", [0.5, -1, 0, -1]]),
        ("bfloat16", ["float32", [0.5, -1, 0, -1]]),
        ("boolean rewards", [-1.0, 1.0]),
    ],
)
def test_accepted(found: dict[str, Any], case: str, want: Any) -> None:
    """CPU tensors of any layout, as policy, reference, mask and lengths."""
    assert found[case] == want


@pytest.mark.parametrize(
    ("case", "error", "remedy"),
    [
        ("parameter", "ValueError: `policy` is a torch.nn.parameter.Parameter", "pass policy.detach()"),
        ("integers", "TypeError: `policy` is a torch.Tensor of torch.int64", "convert it in its own library"),
        ("meta", "ValueError: `policy` is a torch.Tensor of torch.float32, must be readable", "convert it"),
        ("sparse", "ValueError: `policy` is a torch.Tensor of torch.float32, must be readable", "convert it"),
        ("negated", "ValueError: `policy` is a torch.Tensor of torch.float32 that is a negated view", "resolve_neg()"),
        ("out in the tensor's memory", "ValueError: `out` shares memory with an input", "memory of its own"),
    ],
)
def test_refused(found: dict[str, Any], case: str, error: str, remedy: str) -> None:
    """What cannot be read is named, with what helps."""
    assert found[case].startswith(error)
    assert remedy in found[case]
