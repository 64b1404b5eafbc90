"""How the text of an option or argument becomes its value."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer
import typer.core

SEAM = "build_runtime_param"
"""Where typer says how a value is read. One that has no such place reads simple kinds itself."""


def read_plainly() -> None:
    """Let values of simple kinds be read here, in this process, from now on.

    Typer reads all values with pydantic, whose import takes longer than the rest of a command
    that only reads. What is not simple is left to it.
    """
    theirs = getattr(typer.core, SEAM, None)
    if theirs is None or getattr(theirs, "__module__", "") == __name__:
        return

    def reader(descriptor: Any) -> Any:
        read = READERS.get(descriptor.annotation)
        declared = descriptor.parameter_info
        if read is None or any(getattr(declared, name, None) for name in MORE):
            return theirs(descriptor)
        return Plain(read, declared)

    setattr(typer.core, SEAM, reader)


MORE = ("parser", "clamp", "exists", "writable", "resolve_path")
"""What can be asked of a value besides its kind and range; then typer reads it."""


class Plain:
    """Reads the values of one option or argument."""

    def __init__(self, read: Callable[[str], Any], declared: Any) -> None:
        self._read = read
        self._low, self._most = declared.min, declared.max

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value; several come as a list. Raises `typer.BadParameter`."""
        several = getattr(param, "multiple", False) or param.nargs == -1
        if value is None:
            return () if several else None
        try:
            if several:
                return [self._one(each) for each in value]
            return self._one(value)
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from None

    def _one(self, value: Any) -> Any:
        found = self._read(value)
        if self._low is not None and found < self._low:
            raise ValueError(f"{found} is less than {self._low}.")
        if self._most is not None and found > self._most:
            raise ValueError(f"{found} is more than {self._most}.")
        return found


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number.") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number.") from None


READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    list[str]: str,
    int: _count,
    float: _number,
    bool: bool,
    Path: Path,
    list[Path]: Path,
}
"""By annotation. A flag is a truth value already, or was not given."""
