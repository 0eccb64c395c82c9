"""mlx-lm-lora's DPO on long rows, scored in steps of a few tokens."""

import mlx_lm_lora_base as base


def chunks(seq_length, seq_step_size):
    for start in range(0, seq_length, seq_step_size):
        yield start, min(start + seq_step_size, seq_length)


if __name__ == "__main__":
    base.main("dpo", config={"seq_step_size": 5}, patches={"iter_cached_sft_chunks": chunks})
