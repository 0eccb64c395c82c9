"""Train with the reference trainer of this repository by the calls of `gates trainer train`."""

REWARD = '''"""Rewards that do not depend on texts."""


def alternating(completions):
    """Return 0, 1, 0, 1, …"""
    return [float(i % {samples} % 2) for i in range(len(completions))]
'''
CONFIG = """
[model]
path = {folder}

[adapter]
rank = {rank}

[data]
kind = "jsonl"
path = {data}
shuffle = false

[rollout]
samples_per_prompt = {samples}
max_tokens = {tokens}
temperature = {temperature}
top_p = {top_p}
seed = {seed}

[algorithm]
name = "grpo"
settings = {{ beta = {beta} }}

[optimizer]
learning_rate = {learning_rate}

[loop]
steps = {steps}
prompts_per_step = {prompts_per_step}

[[rewards.functions]]
name = "user"
function = {reward}

[output]
folder = {output}
console = false
checkpoint_every_steps = 0
"""


def train(job, probe):
    """Train the steps of the job."""
    import sys

    if job["root"]:
        sys.path[:0] = [job["root"], f"{job['root']}/reference"]
    import json
    from pathlib import Path

    from gates_reference.trainer import rollout
    from gates_reference.trainer.config import algorithm, read
    from gates_reference.trainer.loop import run
    from gates_reference.trainer.metrics.callbacks import Callback

    probe.use_mlx()
    scratch = Path(job["scratch"])
    (scratch / "reward.py").write_text(REWARD.format(samples=job["samples"]))
    lines = [json.dumps({"prompt": text, "answer": "0"}) for text in job["prompts"]]
    (scratch / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    paths = {
        "folder": json.dumps(job["folder"]),
        "data": json.dumps(str(scratch / "prompts.jsonl")),
        "reward": json.dumps(f"{scratch / 'reward.py'}:alternating"),
        "output": json.dumps(str(scratch / "run")),
    }
    (scratch / "run.toml").write_text(CONFIG.format(**{**job, **paths}))
    config = read.read(scratch / "run.toml", ())
    chosen = algorithm.create(config)

    class Steps(Callback):
        """Reports the boundaries of steps."""

        def start(self, *_):
            """Start the clock."""
            probe.begin()

        def step(self, *_):
            """End a step."""
            if probe.number == 0:
                probe.send("settings", settings=_settings(config, chosen, seen["model"]))
            probe.step()

    seen, generate = {}, rollout.run

    def generating(model, *rest):
        seen["model"] = model
        return generate(model, *rest)

    rollout.run = probe.timed(generating, lengths=lambda result: [int(n) for n in result.lengths])
    run.train(config, chosen, callbacks=[Steps()])


def _settings(config, chosen, model):
    import dataclasses

    from mlx.utils import tree_flatten

    settings = dataclasses.asdict(chosen.settings) if dataclasses.is_dataclass(chosen.settings) else {}
    return {
        "samples": config.rollout.samples_per_prompt,
        "prompts_per_step": config.loop.prompts_per_step,
        "max_tokens": config.rollout.max_tokens,
        "temperature": config.rollout.temperature,
        "top_p": config.rollout.top_p,
        "top_k": config.rollout.top_k,
        "beta": settings.get("beta"),
        "epsilon": settings.get("epsilon_low"),
        "epsilon_high": settings.get("epsilon_high"),
        "loss": config.algorithm.name,
        "learning_rate": config.optimizer.learning_rate,
        "optimizer": config.optimizer.name,
        "max_gradient_norm": config.optimizer.max_gradient_norm,
        "adapter": config.adapter.spec(),
        "trainable_parameters": sum(v.size for _, v in tree_flatten(model.trainable_parameters())),
        "dtype": str(model.model.norm.weight.dtype),
        "old_policy_pass": config.loop.iterations > 1 or config.loop.minibatches > 1,
        "reference_pass": bool(chosen.needs_reference),
        "gradient_checkpointing": config.model.checkpoint_layers,
        "rows_decoded_at_once": config.loop.prompts_per_step * config.rollout.samples_per_prompt,
        "rollout_path": config.rollout.path,
    }
