"""Makers of the generated parts: each reads the package and returns Markdown or SVG."""
