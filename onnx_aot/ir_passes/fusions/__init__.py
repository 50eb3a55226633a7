"""Fuses nodes into one larger operator, or the form that runtimes recognize; one per file."""
