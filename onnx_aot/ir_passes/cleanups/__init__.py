"""Rules that leave nodes out, or put several into one, whatever the model computes."""
