"""Pages in a real browser. Marker ``browser``: needs Chromium, which the system brings."""
