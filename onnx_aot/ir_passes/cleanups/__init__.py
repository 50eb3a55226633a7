"""Rules that remove nodes, or merge several into one, independent of the kind of model."""
