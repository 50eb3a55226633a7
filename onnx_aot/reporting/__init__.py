"""The report of an export.

``record`` collects what happens, ``report_fields`` is what a report holds, ``report`` builds one
and ``markdown`` writes it; ``failures`` describes an error, and ``repro_script`` repeats the
export.
"""
