"""The Lua scripts of the adapter: each file of `lua/` is one, and says what it takes and gives."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def lua_text(name: str) -> str:
    """The text of a script."""
    return (files(__package__) / "lua" / f"{name}.lua").read_text("utf-8")
