"""Isolated environments for other people's libraries, from requirements that are pinned here."""
