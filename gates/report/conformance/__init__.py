"""Pages about other libraries: the conformance matrix, a page and a letter for each library, and what a terminal shows."""
