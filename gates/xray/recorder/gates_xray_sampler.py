"""Whose weights a sampler has, after the first update: the trained model's, or a copy's that was made before it.

It runs in the interpreter of the script: standard library only.
"""

from __future__ import annotations

import contextlib

OURS, COPY, START, OTHER = "trained model", "copy", "start", "another model"


def whose(sampler, trained, start, equal):
    """Return whose weights a sampler has, None where it cannot be compared.

    Args:
        sampler: its weights by name.
        trained: the trained ones of now, by name.
        start: the same before the first update; None before there was one.
        equal: whether two weights have the same numbers.
    """
    if not start or not set(start) <= set(trained):
        return None
    if {id(value) for value in sampler.values()} & {id(trained[name]) for name in start}:
        return OURS
    if not set(start) <= set(sampler):
        return None
    with contextlib.suppress(Exception):  # weights of several devices
        for name, weights in ((COPY, trained), (START, start)):
            if all(equal(sampler[key], weights[key]) for key in start):
                return name
        return OTHER
    return None
