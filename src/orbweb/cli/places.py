"""In which line of which file a setting stands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from orbweb.settings.names import SYNONYMS
from orbweb.settings.sources import FILE_VARIABLES

FILE = "file "
CLASS = ".custom_settings"


def place_of(
    name: str, origin: str, spider: type | None, directory: Path, environ: Mapping[str, str]
) -> str:
    """The origin of a value with file and line, as far as they can be found."""
    if origin.startswith(FILE):
        file = _project_file(origin.removeprefix(FILE), directory, environ)
        line = _line(_texts(file), name)
        return f"{origin}, line {line}" if line else origin
    if origin.endswith(CLASS) and spider is not None:
        for each in spider.__mro__:
            with suppress(TypeError, OSError):
                lines, start = inspect.getsourcelines(each)
                if line := _line(lines, name):
                    file = Path(inspect.getfile(each))
                    return f"{origin}, {_shown(file, directory)} line {start + line - 1}"
    return origin


def _project_file(name: str, directory: Path, environ: Mapping[str, str]) -> Path:
    named = next((environ[each] for each in FILE_VARIABLES if environ.get(each)), name)
    return directory / named


def _texts(file: Path) -> list[str]:
    with suppress(OSError, UnicodeDecodeError):
        return file.read_text(encoding="utf-8").splitlines()
    return []


def _line(lines: list[str], name: str) -> int:
    """The number of the last line that sets this name or another of its names; 0 for none."""
    names = "|".join(map(re.escape, (name, *(o for o, ours in SYNONYMS.items() if ours == name))))
    setting = re.compile(rf"(?<!\w)[\"']?(?:{names})[\"']?\s*(?::|=(?!=))")
    found = [
        number
        for number, line in enumerate(lines, 1)
        if not line.lstrip().startswith("#") and setting.search(line)
    ]
    return found[-1] if found else 0


def _shown(file: Path, directory: Path) -> str:
    with suppress(ValueError):
        return str(file.resolve().relative_to(directory.resolve()))
    return file.name
