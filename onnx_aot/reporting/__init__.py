"""Builds and writes the report of an export.

``record`` collects what happens, ``report_fields`` defines the data of a report, ``report`` builds
it and ``markdown`` renders it; ``failures`` describes an error, and ``repro_script`` writes a
script that repeats the export.
"""
