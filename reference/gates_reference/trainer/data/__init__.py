"""Prompts: where they come from, how they become tokens, and in which order they are used."""
