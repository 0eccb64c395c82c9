"""A subject is not blamed for a choice that it never said it has, wherever in a check that choice is asked for."""

from pathlib import Path

from command_line import here

ONLY_THE_MEAN = """
import numpy as np

def group_advantages(rewards, group_size, *, scale, ddof, eps, eps_mode, baseline):
    groups = rewards.reshape(-1, group_size).astype(np.float64)
    centred = groups - groups.mean(axis=1, keepdims=True)
    advantages = centred / (groups.std(axis=1, ddof=ddof, keepdims=True) + eps)
    return {"advantages": advantages.reshape(-1).astype(rewards.dtype)}

OPS = {"group_advantages": group_advantages}
CONVENTIONS = {"group_advantages": {"scale": ("group",), "eps_mode": ("add",), "baseline": ("mean",)}}
"""


def test_a_law_beyond_what_is_declared_is_unsupported(tmp_path: Path) -> None:
    """Leave-one-out and no scale are asked for within cases of the mean and of the group's scale."""
    (tmp_path / "mine.py").write_text(ONLY_THE_MEAN)
    done = here("check", "advantages.laws-hold", "--subject", "./mine.py", "--no-minimise", "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "unsupported: mine: group_advantages of mine has baseline 'mean', not 'leave-one-out'" in done.stdout
    assert "advantages.laws-hold  correct 7 " in done.stdout


WITHOUT_OPTIONS = """
from gates.subjects.numpy_baseline import subject

def selective_log_softmax(*, logits, ids, temperature, entropy=False):
    return subject.OPS["selective_log_softmax"](logits=logits, ids=ids, temperature=temperature, entropy=entropy)

OPS = {"selective_log_softmax": selective_log_softmax}
"""


def test_a_missing_optional_input_is_unsupported(tmp_path: Path) -> None:
    """A function of the signature that users had before `ignore_index` passes the cases that do not give it."""
    (tmp_path / "mine.py").write_text(WITHOUT_OPTIONS)
    select = ("logprobs.selective.matches-definition", "--quick")
    done = here("check", *select, "--subject", "./mine.py", "--no-minimise", "-v", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "unsupported: mine: selective_log_softmax does not take `ignore_index`, which is optional" in done.stdout
