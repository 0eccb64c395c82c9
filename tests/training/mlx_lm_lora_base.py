"""Two updates of mlx-lm-lora's GRPO or DPO on a tiny model."""

import argparse
import os
import sys
from pathlib import Path

import mlx.core as mx
import mlx.optimizers as optim
import mlx_lm
import numpy as np

if not mx.metal.is_available():  # the library asks Metal how much memory it has
    mx.device_info = lambda *_: {"max_recommended_working_set_size": 1 << 30}
    mx.set_wired_limit = lambda _: 0

import mlx_lm_lora.trainer.dpo_trainer as dpo_library
import mlx_lm_lora.trainer.grpo_trainer as grpo_library

try:
    from gates_xray import gates_note
except ImportError:

    def gates_note(**facts):
        pass


GRPO = {
    "group_size": 4,
    "beta": 0.1,
    "epsilon": 0.2,
    "epsilon_high": 0.2,
    "max_completion_length": 10,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "grpo_loss_type": "grpo",
    "importance_sampling_level": "token",
}
DPO = {"beta": 0.1, "loss_type": "sigmoid"}
RATE = {"grpo": 0.04, "dpo": 0.05}
END_TOKENS = range(20, 70)  # a random model rarely samples one token: these end an answer too


def tokens(rng, count):
    return [int(token) for token in rng.integers(100, 300, count)]


def reward(completions, **_):
    """Return a number that differs between completions."""
    return [0.4 * (len(text) % 5) + 0.3 * (sum(text.encode()) % 4) + 0.1 * row for row, text in enumerate(completions)]


def note_rollouts(settings):
    """Note rewards, groups and tokens of each rollout before its rows are scored."""
    generate = grpo_library.generate_grpo

    def noting(*args, **kwargs):
        completions, texts, indices = generate(*args, **kwargs)
        ids = [completion.tolist() for completion in completions]
        gates_note(rewards=reward(texts), groups=list(indices), ids=ids, settings=settings)
        return completions, texts, indices

    grpo_library.generate_grpo = noting


def main(kind="grpo", *, config=None, actual=None, reference=None, train_options=None, patches=None):
    """Train for two updates.

    config: settings meant to differ from the base's; actual: settings that the trainer gets instead of them;
    reference: function of the policy and the loaded reference, returns the reference to train with;
    train_options: more arguments of the training function; patches: names and functions put into the trainer's module.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--kind", choices=["grpo", "dpo"], default=kind)
    options = parser.parse_args()
    kind = options.kind
    os.makedirs(options.out, exist_ok=True)
    np.random.seed(options.seed)
    mx.random.seed(options.seed)
    rng = np.random.default_rng(options.seed + 1)
    model, tokenizer = mlx_lm.load(options.model)
    frozen = mlx_lm.load(options.model)[0]
    frozen.freeze()
    if reference is not None:
        frozen = reference(model, frozen)
    common = {"iters": 2, "steps_per_eval": 100, "steps_per_report": 1, "max_seq_length": 64}
    common["adapter_file"] = str(Path(options.out) / "adapters.safetensors")
    library = grpo_library if kind == "grpo" else dpo_library
    meant = (GRPO if kind == "grpo" else DPO) | (config or {})
    for name, function in (patches or {}).items():
        setattr(library, name, function)
    optimizer = optim.SGD(RATE[kind])
    if kind == "grpo":
        for token in END_TOKENS:
            tokenizer.add_eos_token(str(token))
        settings = {"algorithm": {"bnpo": "dapo"}.get(meant["grpo_loss_type"], meant["grpo_loss_type"]), "epsilon_low": meant["epsilon"]}
        settings |= {"epsilon_high": meant["epsilon_high"], "beta": meant["beta"], "scale": "group", "ddof": 0}
        settings |= {"eps": 1e-4, "eps_mode": "add", "baseline": "mean"}
        if options.notes:
            note_rollouts(settings)
        rows = [(tokens(rng, count), [1, 2], "question", "answer", None) for count in (4, 6)]
        arguments = library.GRPOTrainingArgs(batch_size=2, **common, **(meant | (actual or {})))
        library.train_grpo(
            model, frozen, tokenizer, optimizer, rows, None, reward_funcs=[reward], args=arguments, **(train_options or {})
        )
    else:
        if options.notes:
            loss = {"sigmoid": "dpo"}.get(meant["loss_type"], meant["loss_type"])
            gates_note(settings={"loss": loss, "beta": meant["beta"]})
        rows = []
        for extra in range(3):
            prompt = tokens(rng, 4)
            row = {"chosen": [*prompt, *tokens(rng, 4 + 2 * extra), 2], "rejected": [*prompt, *tokens(rng, 9 - extra), 2]}
            rows.append(row | {"chosen_prompt_length": 4, "rejected_prompt_length": 4})
        arguments = library.DPOTrainingArgs(batch_size=3, **common, **(meant | (actual or {})))
        more = {"loss_type": meant["loss_type"]} | (train_options or {})
        library.train_dpo(model, frozen, optimizer, rows, None, args=arguments, **more)
    if os.environ.get("MISTAKES_DEBUG"):
        weights = mlx_lm.tuner.utils.tree_flatten(model.parameters())
        print("DEBUG weights", sum(float(np.array(value, dtype=np.float64).sum()) for _, value in weights))


if __name__ == "__main__":
    sys.exit(main())
