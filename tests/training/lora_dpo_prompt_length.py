"""DPO on rows that carry the length of their prompt."""

import mlx_lm_lora_base as base

batches_of = base.dpo_library.iterate_dpo_batches


def as_stored(row):
    """Return the row as the preference file has it."""
    stored = {"chosen": row["chosen"], "rejected": row["rejected"]}
    stored["chosen_prompt_length"] = row["chosen_prompt_length"]
    stored["reject_prompt_length"] = row["rejected_prompt_length"]
    return stored


def iterate(dataset, **options):
    return batches_of(dataset=[as_stored(row) for row in dataset], **options)


if __name__ == "__main__":
    base.main("dpo", patches={"iterate_dpo_batches": iterate})
