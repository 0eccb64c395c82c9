"""Adapters on a frozen base: which modules get one, of which kind, and the files they are kept in."""
