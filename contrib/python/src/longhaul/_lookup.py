"""What stands at a path of a daemon: a file, a link, or a directory with what is in it.

In: `lh://` locations and keys. Out: entries, and whether they are of the path itself, which a
listing alone does not always tell. Must not know what fsspec or Rucio make of it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import longhaul

from ._events import Entry
from ._exits import LonghaulError, NotFoundError


def entries(place: str, keys: Dict[str, Any], recursive: bool = False, most: Optional[int] = None) -> List[Entry]:
    """What `longhaul ls` says of a location: its entries, or itself. At most `most` where given."""
    slash = "" if "/" in place[len("lh://") :] else "/"
    found: List[Entry] = []
    with longhaul._listing(place + slash, recursive, False, (), keys) as listing:
        for event in listing:
            if isinstance(event, Entry):
                found.append(event)
            if most is not None and len(found) >= most:
                listing.cancel()
                break
    return found


def is_itself(place: str, found: List[Entry], keys: Dict[str, Any]) -> bool:
    """Whether entries are the location itself, a file or a link, and not what a directory holds."""
    parent, _, name = place[len("lh://") :].rpartition("/")
    if len(found) != 1 or found[0].path != name or found[0].kind in ("dir", "root") or "/" not in parent:
        return False
    # A directory may hold one file of its own name. Then there is something beneath that.
    try:
        entries(f"{place}/{name}", keys, most=1)
    except NotFoundError:
        return True
    except LonghaulError as error:
        if error.code == "in-the-way":
            return True  # A link: nothing is beneath it.
        raise
    return False


def look(place: str, keys: Dict[str, Any]) -> Optional[Entry]:
    """The file or link at a location, or `None` for a directory. It reads no directory whole."""
    found = entries(place, keys, most=2)
    return found[0] if is_itself(place, found, keys) else None
