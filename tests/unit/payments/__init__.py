"""This room tests the payments provider of the test project as a real process, and the client that talks to it."""
