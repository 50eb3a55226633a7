"""Random numbers, which runtimes draw: ``uniform_and_normal``, and ``distributions`` over them."""
