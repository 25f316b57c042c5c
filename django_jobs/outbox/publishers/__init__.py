"""The publishers that come with the package."""
