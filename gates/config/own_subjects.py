"""The names of Gates' own subjects, separate from their declarations so that settings and messages may name them."""

from __future__ import annotations

NUMPY, RLKERNELS, REFERENCE = OWN = ("numpy", "rlkernels", "reference")
