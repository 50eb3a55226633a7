"""Complex numbers as pairs of real ones, and Fourier transforms."""
