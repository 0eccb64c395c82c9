"""A recorded step is read by rows, so memory does not grow with the file."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory import PEAK

JUDGED = (
    PEAK
    + """
from pathlib import Path
from gates.recorded.judge import judged
before = peak()
file, verdicts = judged(Path(sys.argv[1]))
print(before, peak(), *(verdict.status for verdict in verdicts))
"""
)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of 1.4 GB, most of it sparse padding, takes less than 500 MB."""
    path = tmp_path / "large.safetensors"
    sparse(path, rows=4096, width=16384, tokens=64)
    assert path.stat().st_size > 1.3e9
    done = subprocess.run(
        [sys.executable, "-c", JUDGED, str(path)], capture_output=True, text=True, check=True, timeout=280
    )
    before, peak, *statuses = done.stdout.split(maxsplit=2)
    assert int(peak) - int(before) < 500e6, done.stdout
    assert "correct" in statuses[0]


def sparse(path: Path, rows: int, width: int, tokens: int) -> None:
    """Write a sparse file of a step of zeros with some tokens in each row."""
    wide = {name: ("F32", [rows, width], 4) for name in ("policy", "old", "sampling", "gradient", "reference")}
    shapes = {**wide, "mask": ("BOOL", [rows, width], 1), "advantages": ("F32", [rows], 4), "loss": ("F32", [], 4)}
    settings = {"recorded_step": "1", "algorithm": "grpo", "epsilon_low": "0.2", "epsilon_high": "0.2"}
    header: dict[str, Any] = {"__metadata__": settings}
    end = 0
    for name, (dtype, shape, size) in shapes.items():
        length = int(np.prod(shape)) * size
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + length]}
        end += length
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        start = file.tell()
        file.truncate(start + end)
        for row in range(rows):
            file.seek(start + header["mask"]["data_offsets"][0] + row * width)
            file.write(b"\1" * tokens)
