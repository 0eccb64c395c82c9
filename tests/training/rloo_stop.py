"""RLOO with completions that all end in the end token, as the reward model needs it."""

import trl_base as base


def changes(trainer_class):
    class Trainer(trainer_class):
        def _generate_single_turn(self, *args, **kwargs):
            completions = super()._generate_single_turn(*args, **kwargs)
            end = self.processing_class.eos_token_id
            return [ids if ids[-1] == end else [*ids[:-1], end] for ids in completions]

    return Trainer


if __name__ == "__main__":
    base.main("rloo", trainer_changes=changes)
