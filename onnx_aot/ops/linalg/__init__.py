"""Linear algebra over real matrices."""
