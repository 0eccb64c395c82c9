"""The sampler in one place: random numbers, filters, draws, and whether two paths' tokens are equivalent."""

from gates_reference.oracle.equivalence import Sampling, admissible, expected_differences, logit_distance
from gates_reference.oracle.filters import ORDERS, TIES, draw, filtered_logprobs, token_intervals
from gates_reference.oracle.philox import philox4x32_10, uniforms, xtc_coins

__all__ = [
    "ORDERS",
    "TIES",
    "Sampling",
    "admissible",
    "draw",
    "expected_differences",
    "filtered_logprobs",
    "logit_distance",
    "philox4x32_10",
    "token_intervals",
    "uniforms",
    "xtc_coins",
]
