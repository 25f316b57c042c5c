"""The crash matrix: every fault point, every kind of fault that can hit it, in real workers."""
