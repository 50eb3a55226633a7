"""The result of an export: a model that is saved, run and inspected."""
