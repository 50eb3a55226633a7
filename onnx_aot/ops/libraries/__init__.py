"""Operators of other packages, registered once these are imported (``registry.LATE_FAMILIES``)."""
