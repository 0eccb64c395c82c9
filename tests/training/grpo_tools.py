"""GRPO with a tool: the answer of the tool follows the first turn, then the model goes on."""

import trl_base as base

ANSWER = "\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n"


def changes(trainer_class):
    class Trainer(trainer_class):
        def _generate_single_turn(self, prompt_ids, *args, **kwargs):
            completions, logps = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            answer = self.processing_class(ANSWER, add_special_tokens=False)["input_ids"]
            called = [row for row, ids in enumerate(completions) if ids[-1] == self.processing_class.eos_token_id]
            if not called:
                return completions, logps
            for row in called:
                completions[row] = completions[row] + answer
            contexts = [prompt_ids[row] + completions[row] for row in called]
            turns, _ = super()._generate_single_turn(contexts, *args, **kwargs)
            for row, turn in zip(called, turns, strict=True):
                completions[row] = completions[row] + turn
            return completions, logps

    return Trainer


if __name__ == "__main__":
    base.main("grpo", trainer_changes=changes)
