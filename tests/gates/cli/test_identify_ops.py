"""`gates identify` and `gates check` on other ops than policy losses, with wrong programs of tests/bugs/known."""

import json
from pathlib import Path

import pytest
from command_line import here

BUGS = Path(__file__).parents[2] / "bugs" / "blind"
PRESETS = """
import numpy as np

def group_advantages(rewards, group_size, **_):
    groups = rewards.reshape(-1, group_size)
    return {"advantages": ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-4)).ravel()}

def token_kl(policy, reference, *, mask, **_):
    d = reference - policy
    return {"kl": np.where(mask, np.clip(np.exp(d) - d - 1, -10, 10), 0)}

def importance_weights(old, sampling, *, mask, c_max, **_):
    weights = np.minimum(np.exp(np.where(mask, old - sampling, 0).sum(1)), c_max)
    return {"weights": weights}

OPS = {"group_advantages": group_advantages, "token_kl": token_kl, "importance_weights": importance_weights}
CONVENTIONS = {"token_kl": {"rows": ("mask",)}, "importance_weights": {"rows": ("mask",)}}
"""


def test_presets_are_identified(tmp_path: Path) -> None:
    """The subject declares only the layout of its rows."""
    (tmp_path / "mine.py").write_text(PRESETS)
    done = here("identify", "./mine.py", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    computed = {finding["op"]: finding["computes"] for finding in json.loads(done.stdout)}
    assert "(mlx-lm-lora)" in computed["group_advantages"]
    assert "low_var_kl" in computed["token_kl"]
    assert "sequence_truncate" in computed["importance_weights"]


@pytest.mark.parametrize(
    ("bug", "gate", "message"),
    [
        ("advantages_numpy_std", "advantages.matches-definition", "group z-score with ddof 0 (asked: 1)"),
        ("kl_weighted_by_p", "kl.k1.matches-definition", "weighed by its probability again"),
        ("logprobs_one_token_late", "logprobs.selective.matches-definition", "ids shifted by one position to the left"),
        ("ratio_mean_over_width", "ratio.matches-definition", "D averaged over the padded width"),
        ("preference_ipo_target", "preference.ipo.matches-definition", "target 1/β (asked: 1/(2β))"),
        (
            "sampling_top_p_crossing",
            "sampling.filters.keep-the-right-tokens",
            "top-p without the token whose mass reaches p",
        ),
    ],
)
def test_a_check_names_what_is_computed(bug: str, gate: str, message: str, tmp_path: Path) -> None:
    subject = str(BUGS / f"{bug}.py")
    options = ("--quick", "--jobs", "1", "--no-minimise", "-v")
    done = here("check", gate, "--subject", subject, *options, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    shown = " ".join(done.stdout.split())
    assert "computes: " in shown
    assert message in shown


@pytest.mark.parametrize(
    ("bug", "op", "message"),
    [
        ("preference_ipo_target", "preference_loss", "target 1/β (asked: 1/(2β))"),
        ("sampling_top_p_crossing", "filtered_logprobs", "top-p without the token whose mass reaches p"),
    ],
)
def test_a_wrong_program_is_identified(bug: str, op: str, message: str, tmp_path: Path) -> None:
    """Without conventions: the definition and the change."""
    done = here("identify", str(BUGS / f"{bug}.py"), op, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (finding,) = json.loads(done.stdout)
    assert (finding["kind"], finding["inputs"]) == ("mistake", 8)
    assert message in finding["computes"]
