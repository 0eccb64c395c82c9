"""mlx-lm-lora's GRPO with a copy of the model of its own for rollouts, as an engine beside the trainer has."""

import mlx_lm_lora_base as base

generate = base.grpo_library.generate_grpo


class Engine:
    model = None


def start_engine(model, reference):
    import copy

    Engine.model = copy.deepcopy(reference)
    return reference


def generate_with_engine(**request):
    return generate(**(request | {"model": Engine.model}))


if __name__ == "__main__":
    base.main("grpo", reference=start_engine, patches={"generate_grpo": generate_with_engine})
