"""What each process notes of its own waits, and how it tells the run."""
