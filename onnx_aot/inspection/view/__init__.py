"""Draws a model as an HTML file, as a notebook's output, or as mermaid text."""
