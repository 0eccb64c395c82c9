"""Adapters on a frozen base: settings, target modules, layers and files."""
