"""Verdicts by definition on the updates of a script that has said its rewards or advantages."""

from gates.xray.verdict.judge import verdicts
from gates.xray.verdict.verdict import Verdict

__all__ = ["Verdict", "verdicts"]
