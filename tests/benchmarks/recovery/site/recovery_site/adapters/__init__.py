"""One file per system: the job as that system's documentation writes it, and how to enqueue it."""
