"""The operator table, one file per family, and the builder that translations emit through."""
