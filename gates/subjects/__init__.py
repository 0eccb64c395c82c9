"""Adapters that workers load; only `catalogue` is for the judge."""
