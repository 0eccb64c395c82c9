"""Where cells are judged: on this machine's workers, or on other machines."""
