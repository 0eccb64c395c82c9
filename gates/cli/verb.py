"""Shared behaviour of the verbs: suggest the nearest value of an option, and report an interruption in one line."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

from gates.errors import ExitCode

NONE_OF = re.compile(r"'(.*)' is not one of ('.*)\.")  # typer's message for an invalid choice


class Verb(TyperCommand):
    """A verb that suggests the nearest value of an option and reports an interruption in one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options; for an invalid choice, suggest the nearest value."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            match = NONE_OF.search(error.message)
            if match is not None:
                from gates.nearest import hint

                error.message = match[0].removesuffix(".") + hint(match[1], re.findall("'([^']*)'", match[2]))
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the verb and report an interruption, which typer would not."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("gates: interrupted", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
