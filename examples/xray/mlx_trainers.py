"""Two updates of a trainer of an MLX library with its defaults, for `gates xray`: only the model, the data and the lengths are small.

gates xray -- PYTHON_WITH_MLX_LM examples/xray/mlx_trainers.py mlx-lm-sft MODEL FOLDER
"""

import sys
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
import mlx_lm
import numpy as np

KIND, MODEL, FOLDER = sys.argv[1:4]
if not mx.metal.is_available():  # these libraries ask Metal how much memory it has
    mx.device_info = lambda *_: {"max_recommended_working_set_size": 1 << 30}
    mx.set_wired_limit = lambda _: 0
model, tokenizer = mlx_lm.load(MODEL)
np.random.seed(0)  # noqa: NPY002 - the libraries shuffle by it
mx.random.seed(0)
FILE = str(Path(FOLDER) / "adapters.safetensors")
ids = np.random.default_rng(1)


def tokens(count: int) -> list[int]:
    """Return random tokens."""
    return [int(token) for token in ids.integers(20, 300, count)]


def reward(completions: list[str], **_: object) -> list[float]:
    """Return a number that differs between completions."""
    return [float(len(completion) % 5) for completion in completions]


if KIND == "mlx-lm-sft":
    from mlx_lm.tuner.trainer import TrainingArgs, train

    rows = [([*tokens(count), 2], 4) for count in (11, 14, 9, 16)]
    small = TrainingArgs(batch_size=4, iters=2, steps_per_eval=100, max_seq_length=64, adapter_file=FILE)
    train(model, optim.Adam(1e-3), rows, None, args=small)
elif KIND == "mlx-lm-lora-dpo":
    from mlx_lm_lora.trainer.dpo_trainer import DPOTrainingArgs, train_dpo

    rows = []
    for extra in range(3):
        prompt = tokens(4)
        rows.append({"chosen": [*prompt, *tokens(6 + extra), 2], "rejected": [*prompt, *tokens(9 - extra), 2]})
    small = DPOTrainingArgs(batch_size=3, iters=2, steps_per_eval=100, max_seq_length=64, adapter_file=FILE)
    train_dpo(model, mlx_lm.load(MODEL)[0], optim.SGD(0.1), rows, None, args=small)
elif KIND == "mlx-lm-lora-grpo":
    from mlx_lm_lora.trainer.grpo_trainer import GRPOTrainingArgs, train_grpo

    rows = [(tokens(4), [1, 2], "question", "answer", None), (tokens(5), [1, 2], "question", "answer", None)]
    small = GRPOTrainingArgs(
        batch_size=2, iters=2, steps_per_eval=100, max_seq_length=64, adapter_file=FILE, max_completion_length=8
    )
    reference = mlx_lm.load(MODEL)[0]
    train_grpo(model, reference, tokenizer, optim.SGD(0.1), rows, None, reward_funcs=[reward], args=small)
elif KIND == "mlxrl-grpo":
    from mlx_lm.tuner.utils import linear_to_lora_layers
    from mlxrl.algo.grpo import GRPOAlgorithm
    from mlxrl.rollout.naive import SamplingConfig, generate_group_rollouts
    from mlxrl.train.grpo import batch_from_rollouts, optimizer_step

    model.freeze()
    linear_to_lora_layers(model, 2, {"rank": 4, "scale": 2.0, "dropout": 0.0})
    sampling, algorithm = SamplingConfig(max_tokens=8), GRPOAlgorithm()
    completions = generate_group_rollouts(model, tokenizer, ["hello there", "good day"], 4, sampling, seed=0)
    rewards = [float(len(completion.text) % 5) + 0.1 * row for row, completion in enumerate(completions)]
    batch, optimizer = batch_from_rollouts(model, completions, rewards, 4, 0, algorithm), optim.Adam(1e-2)
    for _ in range(2):
        optimizer_step(model, optimizer, batch, 0.1, 0, algorithm)
else:
    raise SystemExit(f"{KIND} is unknown, must be mlx-lm-sft, mlx-lm-lora-dpo, mlx-lm-lora-grpo or mlxrl-grpo")
