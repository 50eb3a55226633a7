"""Several nodes become one of a larger operator, or the form that runtimes know; one per file."""
