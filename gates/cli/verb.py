"""What all verbs of the command line do alike: name the nearest value of an option, and be interrupted in one line."""

from __future__ import annotations

import re
from typing import Any

import typer
from typer.core import TyperCommand

from gates.errors import ExitCode

NONE_OF = re.compile(r"'(.*)' is not one of ('.*)\.")  # typer's words for a value that an option does not have


class Verb(TyperCommand):
    """A verb that suggests the nearest value of an option, and says in one line that it was interrupted."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; of a word that is none of an option's values the message names the nearest."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            found = NONE_OF.search(error.message)
            if found is not None:
                from gates.nearest import hint

                error.message = found[0].removesuffix(".") + hint(found[1], re.findall("'([^']*)'", found[2]))
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the verb; typer would end it without a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("gates: interrupted", err=True)
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except BrokenPipeError:  # `gates list | head -1`; typer would end it with 1, as if a subject had failed
            raise typer.Exit(ExitCode.FAULT) from None
