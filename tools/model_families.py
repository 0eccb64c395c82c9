"""Build a tiny model of every family of mlx-lm, draw from it and train one step; `make record` updates docs/training.md.

    .venv/bin/python tools/model_families.py            # ten minutes; results/trainer/families.jsonl, for `make generate`
    .venv/bin/python tools/model_families.py gemma2     # one family, printed, nothing is recorded

Each family runs in its own process, because some crash it.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import proofs

RECORD = proofs.ROOT / "results" / "trainer" / "families.jsonl"
LIMIT_S = 120
TEXTS = ["7", "12+7=", "Ann has 3 apples and Bob has 25 more than she. How many have both of them in all?"]
ADAPTER = {"rank": 2, "scale": 2.0, "seed": 3, "b_std": 0.1}
PATHS = {
    "compiled": "train; rollouts in one batch, compiled",
    "batched": "train; rollouts in one batch",
    "prefix": "train; rollouts one prompt at a time",
    "cached": "train; rollouts one row at a time",
}


def tried(family: str) -> dict[str, Any]:
    """Return the trainer's results with a tiny model of the family, in this process."""
    from gates.families.rollout.prompts import encoded  # noqa: PLC0415
    from gates.subjects.mlx_trainer import subject  # noqa: PLC0415
    from gates_reference.trainer import model as models  # noqa: PLC0415
    from gates_reference.trainer import smoke  # noqa: PLC0415

    model = {"family": family}
    prompts = [encoded(text) for text in TEXTS]
    try:
        models.load(model)
    except Exception as error:  # noqa: BLE001  the family's class or transformers may raise anything
        return _failed("built", error)
    try:
        report = smoke.run(model, ADAPTER)
        drawing = {"model": model, "prompts": prompts, "samples": 2, "max_tokens": 12, "temperature": 1.0, "seed": 5}
        drawing |= {"eos_ids": np.arange(20, 30), "adapter": ADAPTER}
        slow, fast = (subject.rollout(**drawing, path=path) for path in ("naive", "auto"))
        step = subject.train_step(
            model=model,
            adapter=ADAPTER,
            prompt_tokens=[prompts[i] for i, _ in slow["rows"]],
            tokens=slow["tokens"],
            lengths=slow["lengths"],
            rewards=np.tile(np.array([1.0, 0.0], np.float32), len(prompts)),
            group_size=2,
            learning_rate=1e-2,
            beta=0.04,
        )
    except Exception as error:  # noqa: BLE001  as above
        return _failed("trained", error)
    rows = (slow["tokens"] == fast["tokens"]).all(axis=1)
    equal = int(rows.sum())  # a rounding difference may choose another expert in one row
    leaves = {name for name in step["trainable"] if name.endswith(("lora_a", "lora_b"))}
    wrong = {
        f"the fastest rollout draws the slowest one's tokens in {equal} of {len(rows)} rows only": equal
        < len(rows) - 1,
        "the loss is not finite": not np.isfinite(step["loss"]),
        f"the norm of the gradient is {step['gradient_norm']}": not 0 < step["gradient_norm"] < np.inf,
        "the base changed": step["base_before"] != step["base_after"] or not set(step["changed"]) <= leaves,
        "the smoke test fails": not report.sound,
    }
    defects = [defect for defect, is_so in wrong.items() if is_so]
    return {
        "path": fast["path"],
        "why_not_faster": fast["reason"],
        "layers_adapted": len(leaves) // 2,
        "rows_equal": f"{equal} of {len(rows)}",
        "idle": len(leaves - set(step["changed"])),
        "without_adapter": sorted(report.linear_without_adapter),
        "problem": "; ".join(defects),
    }


def _failed(action: str, error: Exception) -> dict[str, Any]:
    message = " ".join(str(error).split())
    return {"problem": f"not {action}: {type(error).__name__}: {message}"}


def _in_process(family: str) -> dict[str, Any]:
    """Return the result of `tried` in another process."""
    command = [sys.executable, __file__, family]
    try:
        done = subprocess.run(command, cwd=proofs.ROOT, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return {"problem": f"not done in {LIMIT_S} s"}
    if done.returncode:
        return {"problem": f"the process ended with {done.returncode}"}
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return the markdown table of recorded lines, families grouped by their results."""
    every = [line for line in lines if "family" in line]
    sound = [line for line in every if not line["problem"]]
    rows = [(description, [line for line in sound if line["path"] == path]) for path, description in PATHS.items()]
    body = [f"| {description} | {len(matching)} | {_names(matching)} |" for description, matching in rows if matching]
    broken = [f"- `{line['family']}`: {_escaped(line['problem'])}" for line in every if line["problem"]]
    lacking = [
        f"`{tested['family']}` ({', '.join(tested['without_adapter'])})"
        for tested in sound
        if tested["without_adapter"]
    ]
    return "\n".join(
        [
            f"Of {len(every)} families {len(sound)} train.\n",
            "| result | number | families |\n|---|---|---|",
            *body,
            f"\nLinear layers without an adapter: {', '.join(lacking)}.\n",
            "The others:\n",
            *broken,
        ]
    )


def _names(lines: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(line["family"].replace("_", r"\_") for line in lines)


def _escaped(text: str) -> str:
    short = text if len(text) <= 200 else f"{text[:199]}…"
    return re.sub(r"([_*<>|\[\]])", r"\\\1", short.replace("`", "'"))


def recorded() -> list[dict[str, Any]]:
    """Return the lines of the file."""
    return [json.loads(line) for line in RECORD.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Try the named family, or record all."""
    if len(sys.argv) > 1:
        print(json.dumps(tried(sys.argv[1]), sort_keys=True))
        return
    from gates.results.atomic_write import write_whole  # noqa: PLC0415 - after `proofs`, which finds the checkout
    from gates_reference import tiny_mlx_lm  # noqa: PLC0415 - as above

    versions = {name: importlib.metadata.version(name) for name in ("mlx", "mlx-lm", "transformers")}
    lines: list[dict[str, Any]] = [{**proofs.circumstances(), "versions": versions}]
    for family in tiny_mlx_lm.names():
        if tiny_mlx_lm.has_model(family):
            lines.append({"family": family, **_in_process(family)})
            print(json.dumps(lines[-1]), flush=True)
    write_whole(RECORD, (json.dumps(line, sort_keys=True) + "\n" for line in lines))


if __name__ == "__main__":
    main()
