"""GRPO whose sampler is kept from repeating itself."""

import trl_base

if __name__ == "__main__":
    trl_base.main("grpo", config={"repetition_penalty": 1.5, "top_k": 20})
