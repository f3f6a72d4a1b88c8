"""The program: where it is.

In: the environment and the installed package. Out: a path. Must not know what is run.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from pathlib import Path
from typing import Optional

from ._exits import BinaryNotFoundError

VARIABLE = "LONGHAUL_BINARY"


def find_binary() -> str:
    """The path of the program: `LONGHAUL_BINARY`, the one of this wheel, or the first in `PATH`."""
    named = os.environ.get(VARIABLE)
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise BinaryNotFoundError(
                f"{VARIABLE} names '{named}', which is no program",
                code="not-found",
                object=named,
                hint=f"unset {VARIABLE}, or let it name the program longhaul",
            )
        return named
    found = _of_the_wheel() or shutil.which("longhaul")
    if found is None:
        raise BinaryNotFoundError(
            "the program longhaul is neither in this package nor in PATH",
            code="not-found",
            object="longhaul",
            hint=f"install the wheel of longhaul, or let {VARIABLE} name the program",
        )
    return found


def _of_the_wheel() -> Optional[str]:
    """The program that was installed with this module, wherever the installer put scripts."""
    try:
        files = importlib.metadata.distribution("longhaul").files or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "longhaul" and file.parent.name == "bin":
            path = Path(os.path.abspath(str(file.locate())))
            if os.access(path, os.X_OK):
                return str(path)
    return None
