"""The training commands of libraries, from a model folder to what they save, loaded again."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gates.subjects.peers import environments

tiny = pytest.importorskip("gates_reference.tiny", reason="it needs a build of MLX")
pytestmark = pytest.mark.long

MODEL = "MODEL"  # in commands: the folder of the tiny model
ROWS: dict[str, Any] = {  # data by kind: each is a file of eight lines
    "texts": lambda i: {"prompt": f"add {i} and {i}", "completion": f" it is {2 * i}"},
    "pairs": lambda i: {"prompt": f"add {i} and {i}", "chosen": f" it is {2 * i}", "rejected": f" no idea {i}"},
    "labels": lambda i: {"prompt": f"add {i} and {i}", "completion": f" it is {2 * i}", "label": i % 2 == 0},
    "chats": lambda i: {"prompt": [{"role": "user", "content": f"add {i} and {i}"}], "solution": str(2 * i)},
    "questions": lambda i: {"prompt": f"add {i} and {i}", "answer": str(2 * i)},
}
REWARD = """
from mlx_lm_lora.trainer.grpo_reward_functions import register_reward_function

@register_reward_function("many")
def many(prompts, completions, answer, types=None):
    return [float(len(completion) % 5) for completion in completions]
"""
WITHOUT_METAL = """
import mlx.core as mx
if not mx.metal.is_available():  # it asks Metal how much memory it has
    mx.device_info = lambda *_: {"max_recommended_working_set_size": 1 << 30}
    mx.set_wired_limit = lambda *_: 0
from mlx_lm_lora.train import main
main()
"""
SMALL = ["--iters", "2", "--batch-size", "2", "--num-layers", "2", "--val-batches", "1", "--adapter-path", "out"]
MLX_LM = ["-m", "mlx_lm", "lora", "--model", MODEL, "--train", "--data", "texts", *SMALL]
LORA = ["-c", WITHOUT_METAL, "--model", MODEL, "--train", *SMALL]
GRPO = ["--group-size", "2", "--max-completion-length", "8"]
REWARDED = [*GRPO, "--reward-functions", "many", "--reward-functions-file", "reward.py"]
ONCE = ["--max_steps", "2", "--per_device_train_batch_size", "2", "--save_strategy", "no", "--output_dir", "out"]
TRL = ["--model_name_or_path", MODEL, *ONCE, "--report_to", "none", "--use_cpu", "--bf16", "false"]
SAMPLED = ["--reward_funcs", "think_format_reward", "--num_generations", "2", "--max_completion_length", "8"]
MOVED = """
import sys, mlx.core as mx, mlx_lm
base, trained = mlx_lm.load(sys.argv[1])[0], mlx_lm.load(sys.argv[1], adapter_path="out")[0]
ids = mx.array([[5, 6, 7]])
assert mx.abs(base(ids) - trained(ids)).max().item() > 0
"""
LOADED = """
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
AutoTokenizer.from_pretrained("out")
KIND.from_pretrained("out")
"""
CAUSAL, SCORED = (
    LOADED.replace("KIND", name) for name in ("AutoModelForCausalLM", "AutoModelForSequenceClassification")
)
COMMANDS = {
    "mlx-lm-lora": ("mlx-lm", MLX_LM, MOVED),
    **{
        f"mlx-lm-lora-{mode}": ("mlx-lm-lora", [*LORA, "--train-mode", mode, "--data", data, *more], MOVED)
        for mode, data, more in (
            ("sft", "texts", []),
            ("dpo", "pairs", []),
            ("orpo", "pairs", []),
            ("cpo", "pairs", []),
            ("grpo", "questions", REWARDED),
        )
    },
    **{
        f"trl-{name}": ("trl", ["-m", "trl.cli.main", name, *TRL, "--dataset_name", data, *more], loaded)
        for name, data, more, loaded in (
            ("sft", "texts", [], CAUSAL),
            ("dpo", "pairs", [], CAUSAL),
            ("kto", "labels", [], CAUSAL),
            ("reward", "pairs", [], SCORED),
            ("grpo", "chats", SAMPLED, CAUSAL),
            ("rloo", "chats", SAMPLED, CAUSAL),
        )
    },
}


FAILS = {"mlx-lm-lora-cpo": "mlx-lm-lora-cpo-compile-fails"}  # a finding


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.xfail(reason=FAILS[name])] if name in FAILS else []) for name in COMMANDS],
)
def test_what_a_command_saves_is_loaded_again(name: str, tmp_path: Path) -> None:
    """Adapters of MLX libraries change the model; TRL saves a whole model and its tokenizer."""
    library, command, check = COMMANDS[name]
    environment = environments.environment(library)
    if not environment.ready:
        pytest.skip(f"no environment: `gates peers sync {library}` makes it")
    for kind, row in ROWS.items():
        (tmp_path / kind).mkdir()
        text = "".join(json.dumps(row(i)) + "\n" for i in range(8))
        for part in ("train", "valid", "test") if library != "trl" else ("train",):
            (tmp_path / kind / f"{part}.jsonl").write_text(text)
    (tmp_path / "reward.py").write_text(REWARD)
    model = str(tiny.build({}))
    for arguments in ([model if word == MODEL else word for word in command], ["-c", check, model]):
        done = subprocess.run(
            [str(environment.python), *arguments],
            cwd=tmp_path,
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr[-2000:]
