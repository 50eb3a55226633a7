"""Operators of other packages, registered once these are imported."""
