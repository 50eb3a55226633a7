"""What stands on top of ``export``: other callers, observed calls, files beside modules."""
