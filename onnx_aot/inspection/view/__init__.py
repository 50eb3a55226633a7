"""A model as a picture: one HTML file, a notebook's output, or mermaid text."""
