"""Random numbers and samples of distributions."""
