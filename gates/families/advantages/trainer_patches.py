"""Functions that apply mutations; loaded in workers only. Each takes the original function and returns the mistaken one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fn = Callable[..., Any]


def swap_the_stages(original: Fn) -> Fn:
    """Use the batch's ddof and epsilon in the groups, and the groups' over the batch."""

    def mistaken(*arguments: Any, group: Any, batch: Any) -> Any:
        return original(*arguments, group=batch, batch=group)

    return mistaken
