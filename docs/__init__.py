"""The documentation and what writes its generated parts."""
