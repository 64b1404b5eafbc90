"""The version of this package."""

from __future__ import annotations

from importlib import metadata


def own_version() -> str:
    """The installed version, or `dev` when it runs from a source tree."""
    try:
        return metadata.version("orbweb")
    except metadata.PackageNotFoundError:
        return "dev"
