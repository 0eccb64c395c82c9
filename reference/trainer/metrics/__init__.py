"""What a step did, in numbers, and where the numbers go."""
