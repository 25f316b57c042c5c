"""Taking effects back."""
