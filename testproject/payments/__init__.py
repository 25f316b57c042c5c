"""A payments provider that the shop calls over HTTP."""
