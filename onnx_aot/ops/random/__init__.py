"""Random numbers drawn at runtime: ``uniform_and_normal``, and ``distributions`` based on them."""
