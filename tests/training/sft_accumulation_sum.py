"""SFT in micro-batches with a loss that is the mean over the tokens it is given."""

import trl_base


def plain_mean(trainer_class):
    class PlainMean(trainer_class):
        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return super().compute_loss(model, inputs, return_outputs)

    return PlainMean


if __name__ == "__main__":
    sizes = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    trl_base.main("sft", config=sizes, trainer_changes=plain_mean)
