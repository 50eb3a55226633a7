"""Programs that generate, in environments of their own."""
