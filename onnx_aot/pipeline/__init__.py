"""Around the stages of an export: records, notes, and the search for causes."""
