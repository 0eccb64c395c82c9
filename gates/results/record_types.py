"""What the records of results files are made of: numbers that JSON lacks, repeated strings, strict models."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, GetCoreSchemaHandler, GetPydanticSchema, PlainSerializer
from pydantic_core import CoreSchema, PydanticSerializationError, core_schema


def _from_number(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _number_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return the schema of a number or its text; in this order a million numbers need no Python call."""
    texts = core_schema.no_info_after_validator_function(float, core_schema.literal_schema(["nan", "inf", "-inf"]))
    return core_schema.union_schema([handler(source), texts], mode="left_to_right")


Number = Annotated[
    float,
    GetPydanticSchema(_number_schema),
    PlainSerializer(_from_number, return_type=float | Literal["nan", "inf", "-inf"]),
]


Repeated = Annotated[str, AfterValidator(sys.intern)]
"""A string that most lines repeat; interned, a large file takes half the memory."""


# NaN outside `Number`, as in a model's spec, is written as text too, since JSON has no NaN
STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=True, ser_json_inf_nan="strings")


class StrictRecord(BaseModel):
    """A record without undeclared fields."""

    model_config = {**STRICT, "frozen": True}

    def model_dump_json(self, **options: Any) -> str:
        """Return the record as JSON; Ctrl-C in the serializer of a number is Ctrl-C, not pydantic's error about it."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError as error:
            if KeyboardInterrupt.__name__ in str(error):  # pydantic keeps the name of what was raised, no more
                raise KeyboardInterrupt from None
            raise
