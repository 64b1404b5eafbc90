"""Which code a run was made with: the spider's file, and the commit that is checked out around it.

The layout of a git directory is that of gitrepository-layout(5); git itself need not be installed.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path

DIGITS = 12
"""Of a commit or a digest; enough to tell versions apart."""

_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def file_version(file: Path) -> str:
    """The beginning of the SHA-256 of a file; empty when it cannot be read."""
    with suppress(OSError):
        return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGITS]
    return ""


def commit_of(folder: Path) -> str:
    """The beginning of the commit that is checked out in a folder; empty when there is none."""
    for each in (folder, *folder.parents):
        place = each / ".git"
        with suppress(OSError, UnicodeDecodeError):
            if place.is_file():  # of a work tree, or of a submodule
                place = each / place.read_text().removeprefix("gitdir:").strip()
            if place.is_dir():
                return _head(place)[:DIGITS]
    return ""


def _head(place: Path) -> str:
    head = (place / "HEAD").read_text().strip()
    if not head.startswith("ref:"):
        return _commit(head)
    name = head.removeprefix("ref:").strip()
    shared = place
    with suppress(OSError):
        shared = place / (place / "commondir").read_text().strip()
    for folder in (place, shared):
        with suppress(OSError):
            return _commit((folder / name).read_text().strip())
    for line in (shared / "packed-refs").read_text().splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return _commit(commit)
    return ""


def _commit(text: str) -> str:
    return text if _COMMIT.fullmatch(text) else ""
