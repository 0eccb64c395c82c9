"""The unit roundoff of each dtype."""

from __future__ import annotations

FLOAT32_U = 2.0**-24
FLOAT64_U = 2.0**-53
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": FLOAT32_U, "float64": FLOAT64_U}
