"""Branches, loops, called graphs, and arithmetic on symbolic sizes."""
