"""DPO with the log-probabilities of the reference computed ahead."""

from trl_base import main


def trainer_changes(base):
    class Cached(base):
        def _compute_loss(self, model, inputs, return_outputs):
            columns = "ref_chosen_logps", "ref_rejected_logps"
            inputs |= dict(zip(columns, [inputs[name] for name in reversed(columns)], strict=True))
            return super()._compute_loss(model, inputs, return_outputs)

    return Cached


if __name__ == "__main__":
    main("dpo", config={"precompute_ref_log_probs": True}, trainer_changes=trainer_changes)
