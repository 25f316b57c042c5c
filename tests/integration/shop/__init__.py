"""The shop of the test project and the parts of its demo."""
