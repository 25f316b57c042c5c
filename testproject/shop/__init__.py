"""Orders, their jobs and the demo."""
