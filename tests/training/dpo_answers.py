"""TRL's DPO on answers from two sources: chosen ones written by people, rejected ones sampled."""

import trl_base as base


def from_sources(trainer_class):
    class FromSources(trainer_class):
        def _prepare_dataset(self, *args, **kwargs):
            dataset = super()._prepare_dataset(*args, **kwargs)
            end = self._tokenizer.eos_token_id
            return dataset.map(lambda row: {"chosen_ids": [token for token in row["chosen_ids"] if token != end]})

    return FromSources


if __name__ == "__main__":
    base.main("dpo", trainer_changes=from_sources)
