"""Tells whether a file that another file names lies in its folder."""

from __future__ import annotations

import os

__all__ = ["lies_beside"]


def lies_beside(location: str, path: str) -> bool:
    """True if a relative path stays in the folder of a file, also if links are followed.

    Files beside the target of a link to the file count too, because caches of downloads have links
    to a model, or to an index, and to its data.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isabs(location) or os.pardir in location.replace("\\", "/").split("/"):
        return False
    try:
        target = os.path.realpath(os.path.join(folder, location))
    except ValueError:  # it has a zero byte
        return False
    within = (os.path.realpath(folder), os.path.dirname(os.path.realpath(path)))
    return any(target.startswith(os.path.join(allowed, "")) for allowed in within)
