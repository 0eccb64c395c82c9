"""What a recorded update shows: one module for each question."""
