"""Mutations of the trainer's advantages; loaded in workers only."""

from __future__ import annotations

from typing import Any

from gates.families.patching import Fn, mutation


@mutation
def swap_the_stages(original: Fn, *arguments: Any, group: Any, batch: Any) -> Any:
    """Exchange ddof and epsilon of the groups with those of the batch."""
    return original(*arguments, group=batch, batch=group)
