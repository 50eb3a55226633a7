"""What an export records, and the report that is made of it."""
