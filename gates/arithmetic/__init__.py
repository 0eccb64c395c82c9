"""Numbers that carry a bound on their rounding error, and functions that take them or plain float64 arrays."""
