"""X-ray trainers of other libraries, unchanged, in their environments; `make record` records results/xray/trainers.json.

.venv/bin/python tools/xray_proof.py             # all; some minutes
.venv/bin/python tools/xray_proof.py trl-grpo    # one, not recorded
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any

import proofs

from gates.results.atomic_write import write_whole
from gates.subjects.peers import environments
from gates_reference import tiny

RECORD = proofs.ROOT / "results" / "xray" / "trainers.json"
EXAMPLES = proofs.ROOT / "examples" / "xray"
EXPLAINED = 1e-5  # least that a run in float32 must explain: what is left of its gradient, as in gates_xray.py
TRL = ("grpo", "rloo", "dpo", "kto", "orpo", "cpo", "sft", "online_dpo")
RUNS: Mapping[str, tuple[str, str, str]] = {  # name: peer, script, its kind
    **{f"trl-{kind}": ("trl", "trl_trainers.py", kind) for kind in TRL},
    "trl-grpo-lora": ("trl", "trl_trainers.py", "grpo-lora"),
    "mlx-lm-sft": ("mlx-lm", "mlx_trainers.py", "mlx-lm-sft"),
    "mlx-lm-lora-dpo": ("mlx-lm-lora", "mlx_trainers.py", "mlx-lm-lora-dpo"),
    "mlx-lm-lora-grpo": ("mlx-lm-lora", "mlx_trainers.py", "mlx-lm-lora-grpo"),
    "mlxrl-grpo": ("mlxrl", "mlx_trainers.py", "mlxrl-grpo"),
}


def xray(name: str) -> dict[str, Any]:
    """Run a trainer under `gates xray`, and return what it showed.

    Raises:
        SystemExit: its environment is missing, or it could not be recorded.
    """
    peer, script, kind = RUNS[name]
    environment = environments.environment(peer)
    if not environment.ready:
        raise SystemExit(f"{name}: no environment; `gates peers sync {peer}` makes it")
    with tempfile.TemporaryDirectory() as folder:
        command = [str(environment.python), str(EXAMPLES / script), kind, str(tiny.build({})), folder]
        start = time.monotonic()
        subprocess.run(command, capture_output=True, check=False, timeout=600)
        alone = time.monotonic() - start
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "gates", "xray", "--json", "--", *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        seconds = time.monotonic() - start
    if done.returncode:
        raise SystemExit(f"{name}: gates xray ended with {done.returncode}: {done.stderr[-1500:]}")
    document = json.loads(done.stdout)
    return {
        "peer": peer,
        "framework": document["framework"],
        "seconds": round(seconds, 1),
        "seconds_without": round(alone, 1),
        "updates": [_update(update) for update in document["updates"]],
    }


def _update(update: Mapping[str, Any]) -> dict[str, Any]:
    read = [reading for reading in update["readings"] if reading["kind"] != "cannot tell"]
    return {
        "model": update["model"],
        "tokens": sum(len(row["ids"]) for row in update["rows"]),
        "rows": len(update["rows"]),
        "unexplained": float(f"{update['unexplained']:.2g}"),
        "read": [f"{reading['name']}: {reading['sentence']}" for reading in read if reading["kind"] == "read"],
        "attention": [
            f"{reading['name']}: {reading['sentence']}" for reading in read if reading["kind"] == "attention"
        ],
    }


def table() -> str:
    """Return the recorded trainers as a table in markdown, with what needs attention."""
    trainers = json.loads(RECORD.read_text(encoding="utf-8"))["trainers"]
    lines = ["| trainer | rows, tokens | unexplained | seconds, without | needs attention |", "|---|---|---|---|---|"]
    for name, seen in trainers.items():
        first = seen["updates"][0]
        shares = ", ".join(
            f"{update['unexplained']:.0e}" if update["unexplained"] else "0" for update in seen["updates"]
        )
        attention = dict.fromkeys(line.partition(": ")[2] for update in seen["updates"] for line in update["attention"])
        cells = (
            name,
            f"{first['rows']}, {first['tokens']}",
            shares,
            f"{seen['seconds']:.0f}, {seen['seconds_without']:.0f}",
            "; ".join(attention) or "–",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(names: list[str]) -> int:
    """Return 1 if the gradient of a trainer is not explained."""
    unknown = sorted(set(names) - set(RUNS))
    if unknown:
        raise SystemExit(f"unknown {', '.join(unknown)}; known are {', '.join(RUNS)}")
    shown, left = {}, 0
    for name in names or RUNS:
        shown[name] = seen = xray(name)
        shares = [update["unexplained"] for update in seen["updates"]]
        left += len(shares) < 2 or max(shares) > EXPLAINED
        print(f"{name}: unexplained {shares}, {seen['seconds']} s, {seen['seconds_without']} s without", flush=True)
    if not names:
        record = {"commit": proofs.revision(), "model": "tiny qwen3, float32", "trainers": shown}
        write_whole(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
