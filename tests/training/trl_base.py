"""Two updates of one of TRL's trainers on a tiny model: GRPO (two updates per rollout), RLOO, DPO or SFT."""

import argparse
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

try:
    from gates_xray import gates_note
except ImportError:

    def gates_note(**facts):
        pass


PROMPTS = ["one two", "three four and"]
PAIRS = {
    "prompt": ["one two", "three four", "x", "y"],
    "chosen": [" five six seven", " eight", " nine", " ten eleven"],
    "rejected": [" six", " seven eight nine", " ten", " one two three"],
}
# What the sampler gets besides the configuration: the end token is rare in a random model, so its logit is raised.
SAMPLING = {"sequence_bias": [[[2], 6.0]], "min_new_tokens": 2}
ONLINE = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "num_generations": 4,
    "max_completion_length": 8,
    "num_iterations": 2,
    "beta": 0.0,
    "learning_rate": 5e-4,
    "temperature": 1.0,
    "generation_kwargs": SAMPLING,
}
CONFIGS = {
    "grpo": ONLINE | {"loss_type": "dapo", "scale_rewards": "group", "epsilon": 0.2},
    "rloo": ONLINE | {"normalize_advantages": False, "epsilon": 0.2, "learning_rate": 6e-5},
    "dpo": {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "beta": 0.1},
    "sft": {"per_device_train_batch_size": 4, "learning_rate": 1e-2},
}
NAMES = {"grpo": "GRPO", "rloo": "RLOO", "dpo": "DPO", "sft": "SFT"}


def believed_settings(kind, config):
    """Return the settings that the script means to train with, in words."""
    if kind == "dpo":
        return {"loss": config.get("loss_type", "dpo"), "beta": config["beta"]}
    if kind == "sft":
        return {"loss": "sft"}
    facts = {"epsilon_low": config["epsilon"], "epsilon_high": config.get("epsilon_high", config["epsilon"])}
    facts["beta"] = config["beta"]
    if kind == "rloo":
        return facts | {"algorithm": "rloo", "scale": "none", "baseline": "leave-one-out"}
    facts |= {"algorithm": config["loss_type"], "scale": config["scale_rewards"], "baseline": "mean"}
    if config["scale_rewards"] != "none":
        facts |= {"ddof": 1, "eps": 1e-4, "eps_mode": "add"}
    return facts


class Rollout:
    """Rewards, groups and tokens of the last rollout, in the order in which they were sampled."""

    rewards, groups, ids = [], [], []


def reward(prompts, completions, completion_ids, **_):
    """Return a number that differs between completions."""
    values = [float(len(ids) % 5) + 0.25 * (sum(ids) % 7) + 0.1 * row for row, ids in enumerate(completion_ids)]
    Rollout.rewards = values
    Rollout.groups = [PROMPTS.index(prompt) for prompt in prompts]
    Rollout.ids = [list(ids) for ids in completion_ids]
    return values


def with_notes(trainer_class, kind, settings):
    """Return the trainer class that notes what the script believes before each update's first rows are scored."""

    class Noting(trainer_class):
        def compute_loss(self, *args, **kwargs):
            if not self.model.training or self._noted == self.state.global_step:
                return super().compute_loss(*args, **kwargs)
            self._noted = self.state.global_step
            if kind in {"grpo", "rloo"}:
                gates_note(rewards=Rollout.rewards, groups=Rollout.groups, ids=Rollout.ids, settings=settings)
            else:
                gates_note(settings=settings)
            return super().compute_loss(*args, **kwargs)

        _noted = -1

    return Noting


def main(kind="grpo", *, config=None, trainer_changes=None, after=None, actual=None, pairs=None):
    """Train for two updates.

    config: settings meant to differ from the base's; actual: settings that the trainer gets instead of them;
    trainer_changes: function from a trainer class to a trainer class; after: function called with the trainer;
    pairs: the preference rows.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", required=True)
    parser.add_argument("--notes", action="store_true")
    parser.add_argument("--kind", choices=sorted(NAMES), default=kind)
    options = parser.parse_args()
    kind = options.kind
    set_seed(options.seed)
    meant = CONFIGS[kind] | (config or {})
    arguments = getattr(trl, f"{NAMES[kind]}Config")(
        output_dir=options.out,
        max_steps=2,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        lr_scheduler_type=meant.pop("lr_scheduler_type", "constant"),
        logging_steps=1,
        seed=options.seed,
        **(meant | (actual or {})),
    )
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    trainer_class = getattr(trl, f"{NAMES[kind]}Trainer")
    if trainer_changes is not None:
        trainer_class = trainer_changes(trainer_class)
    if options.notes:
        trainer_class = with_notes(trainer_class, kind, believed_settings(kind, meant))
    more = {}
    if kind in {"grpo", "rloo"}:
        more["reward_funcs"] = reward
        data = Dataset.from_dict({"prompt": PROMPTS})
    elif kind == "dpo":
        data = Dataset.from_dict(pairs or PAIRS)
    else:
        data = Dataset.from_dict({"prompt": PAIRS["prompt"], "completion": PAIRS["chosen"]})
    trainer = trainer_class(model=model, args=arguments, train_dataset=data, processing_class=tokenizer, **more)
    if after is not None:
        after(trainer)
    trainer.train()
    if os.environ.get("MISTAKES_DEBUG"):
        total = sum(float(value.double().sum()) for value in trainer.model.parameters())
        print("DEBUG weights", total)
        for row in Rollout.ids:
            print("DEBUG row", len(row), row)
        for entry in trainer.state.log_history:
            print("DEBUG log", {k: round(v, 6) for k, v in entry.items() if k in {"loss", "grad_norm", "kl", "clip_ratio/region_mean", "learning_rate", "completions/clipped_ratio"}})


if __name__ == "__main__":
    main()
