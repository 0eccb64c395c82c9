"""How a mutation is written: a function of the original function and of the arguments of its call."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

Fn = Callable[..., Any]


def mutation(mistaken: Fn) -> Callable[[Fn], Fn]:
    """Return the patch that replaces a function by `mistaken`, which gets the original before the call's arguments.

    Workers apply it to the patch target of a mutant. What it returns is a function, so that a method stays one.
    """

    @wraps(mistaken)
    def patch(original: Fn) -> Fn:
        def replaced(*arguments: Any, **keywords: Any) -> Any:
            return mistaken(original, *arguments, **keywords)

        return replaced

    return patch
