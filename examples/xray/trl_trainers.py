"""Two updates of a trainer of TRL with its defaults, for `gates xray`: only the model, the data and the lengths are small.

gates xray -- PYTHON_WITH_TRL examples/xray/trl_trainers.py grpo MODEL FOLDER
"""

import importlib
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

NAME, MODEL, FOLDER = sys.argv[1:4]
KIND = NAME.removesuffix("-lora")
PROMPTS = ["one two ", "three four ", "x ", "y "]
CHOSEN = ["five six seven", "eight", "nine", "ten eleven"]
REJECTED = ["six", "seven eight nine", "ten", "one two three"]
NAMES = {
    "grpo": "GRPO",
    "rloo": "RLOO",
    "dpo": "DPO",
    "kto": "KTO",
    "orpo": "ORPO",
    "cpo": "CPO",
    "sft": "SFT",
    "online_dpo": "OnlineDPO",
}
SAMPLES = {"grpo", "rloo", "online_dpo"}


def data() -> Dataset:
    """Return rows in the form that the trainer documents."""
    if KIND == "sft":
        return Dataset.from_dict({"prompt": PROMPTS, "completion": CHOSEN})
    if KIND == "kto":
        return Dataset.from_dict({"prompt": PROMPTS, "completion": CHOSEN, "label": [True, False, True, False]})
    if KIND in SAMPLES:
        return Dataset.from_dict({"prompt": PROMPTS})
    return Dataset.from_dict({"prompt": PROMPTS, "chosen": CHOSEN, "rejected": REJECTED})


def reward(completions: list[str], **_: object) -> list[float]:
    """Return a number that differs between completions."""
    return [float(len(completion) % 5) + 0.25 * row for row, completion in enumerate(completions)]


module = importlib.import_module("trl" if KIND in {"grpo", "rloo", "dpo", "kto", "sft"} else f"trl.experimental.{KIND}")
settings = {
    "output_dir": FOLDER,
    "max_steps": 2,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
}
if KIND in {"grpo", "rloo"}:
    settings |= {"num_generations": 4, "max_completion_length": 8, "num_iterations": 2, "learning_rate": 1e-3}
if KIND == "online_dpo":
    settings |= {"max_new_tokens": 8}
tokenizer = AutoTokenizer.from_pretrained(MODEL)
tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
more = {"reward_funcs": reward} if KIND in SAMPLES else {}
if NAME != KIND:
    from peft import LoraConfig

    more["peft_config"] = LoraConfig(task_type="CAUSAL_LM")
arguments = getattr(module, f"{NAMES[KIND]}Config")(**settings)
trainer = getattr(module, f"{NAMES[KIND]}Trainer")(
    model=model, args=arguments, train_dataset=data(), processing_class=tokenizer, **more
)
trainer.train()
