"""GRPO that does not keep the log-probabilities of the rollout, to save memory."""

from trl_base import main


def trainer_changes(base):
    class Lean(base):
        def _generate_and_score_completions(self, inputs):
            output = super()._generate_and_score_completions(inputs)
            output.pop("old_per_token_logps", None)
            return output

    return Lean


if __name__ == "__main__":
    main(trainer_changes=trainer_changes)
