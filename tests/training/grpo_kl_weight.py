"""GRPO with a KL term that is weighted in a subclass."""

from trl_base import main


def trainer_changes(base):
    class Weighted(base):
        def _compute_loss(self, model, inputs):
            # the base class adds beta * KL
            beta, self.beta = self.beta, self.beta * self.args.beta
            try:
                return super()._compute_loss(model, inputs)
            finally:
                self.beta = beta

    return Weighted


if __name__ == "__main__":
    main(config={"beta": 0.4, "learning_rate": 2e-3, "epsilon": 0.5}, trainer_changes=trainer_changes)
