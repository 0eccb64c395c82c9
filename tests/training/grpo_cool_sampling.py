"""GRPO with a temperature for the sampler."""

from trl_base import SAMPLING, main

if __name__ == "__main__":
    main(actual={"generation_kwargs": SAMPLING | {"temperature": 0.6, "top_k": 50}})
