"""The security list: what could go wrong (S1 to S22), and the test that shows that it does not."""
