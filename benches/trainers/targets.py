"""The timed trainers: environment, worker, limitations, and the grade of the loss."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
CONFORMANCE: Final = ROOT / "results" / "conformance"
LOSS: Final = "policy_loss[grpo]"  # the op of all workloads
LABELS: Final = {  # label by the grade of the loss
    "correct": "same semantics",
    "imprecise": "same semantics",
    "fragile": "same semantics",
    "raises": "same semantics",
    "wrong": "package speed only",
    "differs": "package speed only",
    "departs": "package speed only",
}
ONE_PROMPT: Final = "its trainer takes one prompt a step"
REFERENCE: Final = "reference"


@dataclass(frozen=True, slots=True)
class Target:
    """One way to train or generate.

    Attributes:
        name: for `--targets`.
        peer: of `gates peers list`; empty for the reference trainer.
        worker: file in `workers/`.
        entry: the public entry point.
        generates: it only generates.
        mlx: it uses MLX.
        graded: its loss is the one graded as `LOSS` in results/conformance.
        cannot: unsupported workloads, with the reason.
        note: a remark for readers of its row.
    """

    name: str
    peer: str
    worker: str
    entry: str
    generates: bool = False
    mlx: bool = True
    graded: bool = True
    cannot: Mapping[str, str] = field(default_factory=dict)
    note: str = ""


TARGETS: Final[Mapping[str, Target]] = {
    t.name: t
    for t in (
        Target(
            REFERENCE, "", "reference.py", "gates_reference.trainer.loop.run.train, as gates trainer train calls it"
        ),
        Target(
            "mlxrl",
            "mlxrl",
            "mlxrl.py",
            "mlxrl.rollout.generate_prefix_cached_group_rollouts, mlxrl.train.batch_from_rollouts and optimizer_step",
            note="the loop of its documented Import API; after an early end it starts the group again row by row",
        ),
        Target(
            "mlxrl-cli",
            "mlxrl",
            "mlxrl_cli.py",
            "mlxrl train --config FILE",
            cannot={"ragged": f"{ONE_PROMPT} (mlxrl/cli.py:372, prompts=[prompt])"},
            note="its command generates row by row, each with a prefill of its own",
        ),
        Target(
            "mlx-lm-lora",
            "mlx-lm-lora",
            "mlx_lm_lora.py",
            "mlx_lm_lora.trainer.grpo_trainer.train_grpo",
            note="decodes and scores as many rows at once as a step has prompts; its ratio is always 1, so that no old policy is scored",
        ),
        Target(
            "mlx-tune",
            "mlx-tune",
            "mlx_tune.py",
            "mlx_tune.GRPOTrainer(...).train",
            graded=False,
            cannot={"ragged": f"{ONE_PROMPT}, batch size or not (mlx_tune/rl_trainers.py:1259)"},
            note="its loss is REINFORCE on whole sequences: no ratio, no reference policy, no KL; rows are decoded one by one",
        ),
        Target(
            "mlx-lm",
            "mlx-lm",
            "mlx_lm.py",
            "mlx_lm.batch_generate",
            generates=True,
            note="generates the rows of a step at once, without log-probs, and trains nothing",
        ),
        Target(
            "trl",
            "trl",
            "trl.py",
            "trl.GRPOTrainer(...).train",
            mlx=False,
            cannot={
                "4-bit": "transformers reads no weights that MLX quantised, and bitsandbytes is not in its environment"
            },
            note="all weights train, since PEFT is not in its environment; torch",
        ),
    )
}


def python(target: Target) -> str:
    """Return the interpreter of a target's environment, or "" without an environment."""
    if not target.peer:
        return sys.executable
    from gates.subjects.peers import environments

    environment = environments.environment(target.peer)
    return str(environment.python) if environment.ready else ""


def versions(target: Target) -> dict[str, str]:
    """Return the versions in a target's interpreter that determine its speed."""
    names = ("mlx", "mlx-lm", "torch", "transformers", "numpy")
    if not target.peer:
        import importlib.metadata

        installed = {}
        for name in ("rl-gates", *names):
            try:
                installed[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
        return installed
    from gates.subjects.peers import environments

    every = environments.environment(target.peer).versions
    wanted = (environments.peers()[target.peer].distribution, *names)
    return {name: every[name] for name in dict.fromkeys(wanted) if name in every}


@cache
def judged(target: str, folder: Path = CONFORMANCE) -> tuple[str, str]:
    """Return the label of a target's comparison with the reference, and the grade behind it.

    Args:
        target: a name of `TARGETS`.
        folder: of conformance files.
    """
    from gates.results.conformance_records import read_conformance

    known = TARGETS[target]
    if not known.peer:
        return "same semantics", ""
    if known.generates:
        return "generation only", ""
    path = folder / f"{known.peer}.jsonl"
    if not known.graded or not path.is_file():
        return "not judged yet", ""
    lines = read_conformance(path).grades
    grades = {line.op: line.grade for line in lines if line.subject == known.peer}
    composed = any(line.op.startswith(f"{LOSS.rstrip(']')}, ") for line in lines)  # judged as another composition
    grade = grades.get(LOSS, "differs" if composed else "")
    return LABELS.get(grade, "not judged yet"), grade
