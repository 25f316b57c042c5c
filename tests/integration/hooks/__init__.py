"""Publishers against real sockets, and the inbox on both databases."""
