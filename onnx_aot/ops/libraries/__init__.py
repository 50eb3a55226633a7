"""Operators of other packages, registered once these are imported (``families.LATE_FAMILIES``)."""
