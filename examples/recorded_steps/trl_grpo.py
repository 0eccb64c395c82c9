"""Record steps of TRL's GRPOTrainer for `gates judge`: take `Recording` in its place.

Written for TRL 1.16.0, whose `_compute_loss` has the log-probs from `_get_per_token_logps_and_entropies`. The loss is that
of one micro-batch; TRL divides it by the steps of gradient accumulation, which is undone here. Rewards are not in the
inputs of `_compute_loss`, so that advantages are not judged from this file.

    python examples/recorded_steps/trl_grpo.py step.safetensors     # a tiny random model, on the CPU
"""

import sys

import torch
from datasets import Dataset
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer


class Recording(GRPOTrainer):
    """A GRPOTrainer that writes one step of loss_type grpo, dr_grpo or dapo."""

    path, step = "step.safetensors", 1  # in the first step, 0, old log-probs equal the policy's and show less

    def _get_per_token_logps_and_entropies(self, *args, **kwargs):  # noqa: ANN002, ANN003, ANN202
        found = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._logps = found[0]
        return found

    def _compute_loss(self, model, inputs):  # noqa: ANN001, ANN202
        loss = super()._compute_loss(model, inputs)
        if self.state.global_step == self.step and self._logps.requires_grad:
            policy, scale = self._logps, 1 if self.loss_type == "dapo" else self.current_gradient_accumulation_steps
            mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
            names = {"old": "old_per_token_logps", "reference": "ref_per_token_logps"}
            tensors = {name: inputs[key].float() for name, key in names.items() if inputs.get(key) is not None}
            (gradient,) = torch.autograd.grad(loss, policy, retain_graph=True)
            tensors |= {"policy": policy.float(), "advantages": inputs["advantages"].float(), "mask": mask.bool()}
            tensors |= {"loss": loss * scale, "gradient": gradient.float() * scale}
            save_file(
                {name: x.detach().cpu().contiguous() for name, x in tensors.items()},
                self.path,
                recorded_settings(self, inputs),
            )
        return loss


def recorded_settings(trainer: GRPOTrainer, inputs: dict) -> dict[str, str]:
    """Return the settings of a trainer in the words of Gates."""
    args = trainer.args
    found = {"recorded_step": 1, "algorithm": trainer.loss_type, "beta": trainer.beta}
    found |= {"epsilon_low": trainer.epsilon_low, "epsilon_high": trainer.epsilon_high}
    if inputs.get("old_per_token_logps") is None:
        found["ratio"] = "on-policy"
    if trainer.beta:
        ratio = {"token": "token", "sequence": "sequence"}[trainer.importance_sampling_level]
        found |= {"kl_estimator": "k3", "kl_ratio": ratio if args.use_bias_correction_kl else "none"}
    if trainer.loss_type == "dr_grpo":
        found["max_length"] = trainer.max_completion_length
    if trainer.loss_type == "dapo":
        tokens = float(inputs["num_items_in_batch"]) / trainer.accelerator.num_processes
        tokens *= trainer.current_gradient_accumulation_steps / args.steps_per_generation
        found |= {"dapo_denominator": "trl", "tokens_in_step": tokens}
    return {name: str(value) for name, value in found.items()}


def main(path: str, loss_type: str = "grpo") -> None:
    """Train a tiny random model for two steps and record the second."""
    words = {word: index for index, word in enumerate(["<pad>", "<eos>", *(f"w{i}" for i in range(62))])}
    tokens = Tokenizer(models.WordLevel(words, unk_token="<pad>"))  # noqa: S106  a token of text
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, pad_token="<pad>", eos_token="<eos>")  # noqa: S106
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=64, num_key_value_heads=2, eos_token_id=1, pad_token_id=0, **shape))
    model.save_pretrained(f"{path}.model")  # the trainer loads it twice, as policy and as reference
    Recording.path = path
    config = GRPOConfig(
        output_dir=f"{path}.run",
        max_steps=2,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=12,
        loss_type=loss_type,
        beta=0.04,
        num_iterations=2,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
    )
    trainer = Recording(
        model=f"{path}.model",
        reward_funcs=lambda completions, **_: [float(text.count("w1")) for text in completions],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["w3 w4 w5", "w6 w7"] * 4}),
        processing_class=tokenizer,
    )
    trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])
