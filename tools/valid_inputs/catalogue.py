"""The generators of valid inputs by op."""

from __future__ import annotations

from valid_inputs import Generator, integers, losses, preferences, ratios, rewards, vocabularies

GENERATORS: dict[str, Generator] = {
    generator.op: generator
    for module in (losses, ratios, rewards, preferences, vocabularies, integers)
    for generator in module.GENERATORS
}
