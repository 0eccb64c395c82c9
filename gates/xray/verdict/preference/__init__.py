"""Verdicts on preference losses and supervised training."""

from gates.xray.verdict.preference.judge import quantity_of, verdict
from gates.xray.verdict.preference.settings import named

__all__ = ["named", "quantity_of", "verdict"]
