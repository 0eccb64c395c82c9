"""Whole trainers, each through its own public entry point in its own environment: `gates bench trainers`."""
