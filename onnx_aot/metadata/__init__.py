"""What the model says of its origin: keys, source locations, scopes."""
