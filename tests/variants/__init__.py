"""Settings of sites that differ from the test project in one way each; used by tests that run programs with them."""
