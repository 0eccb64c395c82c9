"""SFT on the completions only."""

from trl_base import main


def trainer_changes(base):
    class Collated(base):
        def compute_loss(self, model, inputs, *args, **kwargs):
            # labels of our own: everything but the padding
            labels = inputs["input_ids"].clone()
            labels[inputs["attention_mask"] == 0] = -100
            inputs["labels"] = labels
            return super().compute_loss(model, inputs, *args, **kwargs)

    return Collated


if __name__ == "__main__":
    main("sft", config={"completion_only_loss": True}, trainer_changes=trainer_changes)
