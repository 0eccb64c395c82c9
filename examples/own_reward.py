"""A reward function of one's own, for examples/own-data.toml."""


def names_the_unit(completions: list[str], unit: list[str]) -> list[float]:
    """Return 1 for each completion that names its row's unit, else 0; one number a completion, in their order."""
    return [float(one in text) for text, one in zip(completions, unit, strict=True)]
