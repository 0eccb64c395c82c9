"""What a run leaves on disk so that it can go on: whole folders, verified before they are loaded."""
