"""The examples run with their documented output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def printed(*command: str) -> list[str]:
    """Return the lines that a command prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=280)
    return done.stdout.splitlines()


class TestBandit:
    """GRPO with only the kernels, in two languages."""

    def test_the_mean_reward_rises(self) -> None:
        """The mean reward ends above 0.9."""
        lines = printed(sys.executable, "examples/bandit.py")
        assert len(lines) == 4
        assert float(lines[-1].rsplit(" ", 1)[1]) > 0.9

    @pytest.mark.long
    def test_both_languages_print_the_same(self) -> None:
        """Draws, advantages, losses and gradients have the same bits in both."""
        rust = printed(
            "cargo", "run", "--quiet", "--manifest-path", "rust/Cargo.toml", "--locked", "-p", "rlkernels",
            "--example", "bandit",
        )  # fmt: skip
        assert rust == printed(sys.executable, "examples/bandit.py")
