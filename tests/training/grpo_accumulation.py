"""GRPO whose loss is scaled for gradient accumulation."""

from trl_base import main


def trainer_changes(base):
    class Scaled(base):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            return loss / self.args.gradient_accumulation_steps

    return Scaled


if __name__ == "__main__":
    main(trainer_changes=trainer_changes)
