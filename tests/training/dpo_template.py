"""DPO on pairs that were rendered with the chat template beforehand."""

import trl_base as base

PAIRS = {
    "prompt": [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in base.PAIRS["prompt"]],
    "chosen": [f"{text.strip()}<|im_end|>\n" for text in base.PAIRS["chosen"]],
    "rejected": [f"{text.strip()}<|im_end|>\n" for text in base.PAIRS["rejected"]],
}

if __name__ == "__main__":
    base.main("dpo", pairs=PAIRS)
