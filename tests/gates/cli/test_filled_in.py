"""A right plain library that fills in a template passes, with nothing declared but its algorithm.

The library takes what such libraries take: no lengths, no weights, one width, one estimator. What it lacks is deleted from
the template's arguments, as the template says.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest
from command_line import here

GRPO = """
    ratio = {m}.exp(policy - ({detach}(policy) if old is None else old))
    a = advantages if advantages.ndim == 2 else advantages[:, None]
    terms = -{m}.minimum(ratio * a, {clip}(ratio, 1 - epsilon_low, 1 + epsilon_low) * a)
    if beta:
        d = reference - policy
        terms = terms + beta * ({m}.exp(d) - d - 1)
    tokens = {m}.{maximum}(mask.sum(1), {one})
    return {loss}
"""
LOSSES = {
    "torch": {"m": "torch", "detach": "torch.detach", "clip": "torch.clip", "maximum": "clamp", "one": "min=1"},
    "mlx": {"m": "mx", "detach": "mx.stop_gradient", "clip": "mx.clip", "maximum": "maximum", "one": "1"},
    "jax": {"m": "jnp", "detach": "jax.lax.stop_gradient", "clip": "jnp.clip", "maximum": "maximum", "one": "1"},
}
FORWARD = "({m}.where(mask, terms, 0.0).sum(1) / tokens).mean()"
NUMPY = """
    ratio = np.exp(policy - (policy if old is None else old))
    a = advantages if advantages.ndim == 2 else advantages[:, None]
    inside = np.where(a > 0, ratio <= 1 + epsilon_low, ratio >= 1 - epsilon_low)
    terms = -np.minimum(ratio * a, np.clip(ratio, 1 - epsilon_low, 1 + epsilon_low) * a)
    slopes = -np.where(inside, ratio * a, 0)
    if beta:
        d = reference - policy
        terms, slopes = terms + beta * (np.exp(d) - d - 1), slopes + beta * (1 - np.exp(d))
    weights = mask / (np.maximum(mask.sum(1, keepdims=True), 1) * len(mask)).astype(policy.dtype)
    return {"loss": np.where(mask, terms * weights, 0).sum(), "gradient": np.where(mask, slopes * weights, 0)}
"""
ADVANTAGES = """
    groups = rewards.reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    return {"advantages": (centred / (groups.std(axis=1, ddof=1, keepdims=True) + 1e-6)).reshape(-1)}
"""
KL = """
    d = np.where(mask, reference - policy, 0) if mask is not None else reference - policy
    return {"kl": np.exp(d) - d - 1}
"""
HAS = {  # the arguments that the library has, and what it declares
    "policy_loss": (
        ("policy", "mask", "old", "reference", "advantages", "epsilon_low", "beta"),
        'algorithm=("grpo",), kl_estimator=("k3",), kl_ratio=("none",),',
    ),
    "group_advantages": (
        ("rewards", "group_size"),
        'scale=("group",), ddof=(1,), eps=(1e-6,), eps_mode=("add",), baseline=("mean",),',
    ),
    "token_kl": (("policy", "reference", "mask"), 'estimator=("k3",),'),
}
INTERPRETERS = {"numpy": sys.executable, "mlx": sys.executable}


def interpreter(framework: str) -> str:
    """Return a Python that has the framework."""
    named = os.environ.get(f"{framework.upper()}_PYTHON", INTERPRETERS.get(framework))
    if named is None or (framework == "mlx" and importlib.util.find_spec("mlx") is None):
        pytest.skip(f"{framework.upper()}_PYTHON names no interpreter with {framework} and NumPy")
    return named


def filled_in(folder: Path, framework: str) -> Path:
    """Write the template and fill in three ops, as its comments say."""
    ops = [part for op in HAS for part in ("--op", op)]
    option = [] if framework == "numpy" else ["--framework", framework]
    done = here("init", "mylib", *ops, *option, cwd=folder)
    assert done.returncode == 0, done.stderr
    file = folder / "mylib_gates.py"
    text = file.read_text()
    names = LOSSES.get(framework, {})
    loss = GRPO.format(loss=FORWARD.format(**names), **names) if names else NUMPY
    for op, body in (("policy_loss", loss), ("group_advantages", ADVANTAGES), ("token_kl", KL)):
        arguments, declared = HAS[op]
        name = f"{op}_of_arrays" if names and op == "policy_loss" else op
        head = re.search(rf"def {name}\((.*?)\):", text, re.DOTALL)
        assert head
        listed = [part.strip() for part in head[1].replace("\n", " ").split(",")]
        kept = [part for part in listed if part == "*" or part.partition("=")[0] in arguments]
        text = text.replace(head[0], f"def {name}({', '.join(kept)}):")
        text = re.sub(
            rf'    raise NotImplementedError\("{op} is not filled in yet"\)\n(    # .*\n)*',
            lambda _, body=body: body[1:],
            text,
        )
        text = text.replace(f'    "{op}",\n', f'    "{op}",\n    {declared}\n')
    file.write_text(text)
    return file


@pytest.mark.parametrize("framework", ["numpy", "mlx", "torch", "jax"])
def test_a_right_library_passes(tmp_path: Path, framework: str) -> None:
    """Every op is judged, and only rare input may make it fragile."""
    python = interpreter(framework)
    file = filled_in(tmp_path, framework)
    done = here("check", "--subject", f"./{file.name}", "--python", python, "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    for grade in ("WRONG", "DIFFERS", "RAISES ", "was not judged", "never given"):
        assert grade not in done.stdout, done.stdout
    assert "3 ops judged" in " ".join(done.stdout.split())


def test_a_wrong_library_fails(tmp_path: Path) -> None:
    """The same template with the widths' sides exchanged and the KL's arguments too."""
    file = filled_in(tmp_path, "numpy")
    text = file.read_text()
    changed = text.replace("reference - policy, 0)", "policy - reference, 0)").replace("a > 0, ratio", "a < 0, ratio")
    assert changed != text
    file.write_text(changed)
    done = here("check", "kl.k3.*", "loss.grpo.*", "--subject", f"./{file.name}", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "WRONG      token_kl[k3]" in done.stdout
    assert "WRONG      policy_loss[grpo]" in done.stdout
