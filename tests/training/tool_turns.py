"""TRL's GRPO with a lookup that answers finished turns; the model then writes a second turn."""

import trl_base as base


RESULT = [82, 71, 85, 17]  # what the lookup returns, as tokens


def with_lookup(trainer_class):
    class WithLookup(trainer_class):
        def _generate_single_turn(self, prompt_ids, images, multimodal_fields, num_generations, **more):
            rows, logps = super()._generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, **more)
            self._own = [[1] * len(row) for row in rows]
            calls = [number for number, row in enumerate(rows) if row[-1] == self._tokenizer.eos_token_id]
            if calls:
                contexts = [prompt_ids[number] + rows[number] + RESULT for number in calls]
                seconds, _ = super()._generate_single_turn(contexts, images, multimodal_fields, num_generations, **more)
                for number, second in zip(calls, seconds, strict=True):
                    rows[number] = rows[number] + RESULT + second
                    self._own[number] = self._own[number] + [0] * len(RESULT) + [1] * len(second)
            return rows, logps

        def _generate(self, prompts):
            output = list(super()._generate(prompts))
            output[2] = self._own
            return tuple(output)

        def _compute_loss(self, model, inputs):
            kept = "prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages"
            kept += "num_items_in_batch", "old_per_token_logps"
            return super()._compute_loss(model, {name: inputs[name] for name in kept})

    return WithLookup


if __name__ == "__main__":
    base.main("grpo", trainer_changes=with_lookup)
