"""Reports and comparisons of what came out."""
