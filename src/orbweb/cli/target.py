"""From `FILE[:Class]`, `module:Class` or a name to a spider class; from `-a` to its arguments."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from orbweb.cli.found import find_named
from orbweb.errors import ConfigError
from orbweb.settings.kinds import COUNT, FLAG, NUMBER, Kind, NotThisKind
from orbweb.spiders.base import BaseSpider

KINDS: dict[Any, Kind] = {int: COUNT, float: NUMBER, bool: FLAG}


def load_spider(target: str) -> type[BaseSpider]:
    """The spider class that a person named.

    A file or module with one spider class needs no class name. Raises `ConfigError` when there is
    no such file, module or class, or when several would fit; what the file itself raises passes.
    """
    place, class_name = _split(target)
    if not class_name and place.isidentifier() and (named := find_named(place, Path())):
        place, class_name = _split(named)
    module = _from_file(Path(place)) if _is_file(place) else _from_name(place)
    if class_name:
        return _named(module, class_name, place)
    spiders = _own_spiders(module)
    if not spiders:
        raise ConfigError(f"{place} has no spider: a class that inherits Spider or AirSpider")
    if len(spiders) > 1:
        names = ", ".join(spider.__name__ for spider in spiders)
        raise ConfigError(
            f"{place} has several spiders ({names}): say which, "
            f"such as {place}:{spiders[0].__name__}"
        )
    return spiders[0]


def make_spider(spider: type[BaseSpider], arguments: Mapping[str, str]) -> BaseSpider:
    """Build the spider. An argument that no constructor of it names becomes an attribute.

    Text becomes a number or a truth value where the constructor's parameter is one. Raises
    `ConfigError` for a value that cannot, for a name that looks like a typing error, and when the
    constructor needs an argument that is not given.
    """
    known = _parameters(spider)
    given: dict[str, Any] = {}
    attributes: dict[str, str] = {}
    for name, text in arguments.items():
        if name in known:
            given[name] = _typed(name, text, known[name])
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        if close and not hasattr(spider, name):
            raise ConfigError(f"-a {name}: {spider.__name__} has no such argument; {close[0]}?")
        if callable(getattr(spider, name, None)):
            raise ConfigError(f"-a {name}: this is a method of {spider.__name__}")
        attributes[name] = text
    try:
        inspect.signature(spider).bind(**given)
    except TypeError as error:
        raise ConfigError(f"{spider.__name__}: {error}; give it with -a NAME=VALUE") from None
    made = spider(**given)
    for name, text in attributes.items():
        setattr(made, name, text)
    return made


def _split(target: str) -> tuple[str, str]:
    place, _, class_name = target.rpartition(":")
    if place and class_name.isidentifier():
        return place, class_name
    return target, ""


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or Path(place).is_file()


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    path = path.resolve()
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = path.stem
    if name.isidentifier() and name not in sys.modules and _found_at(name) == path:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"orbweb_spider_{name}", path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _found_at(name: str) -> Path | None:
    """The file that `import name` would load."""
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).resolve() if spec and spec.origin else None


def _from_name(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"there is neither a spider, a file nor a module {name}; right would be shop.py, "
            "shop.py:ShopSpider or package.module:ShopSpider; orbweb list shows the spiders here"
        ) from None


def _named(module: ModuleType, class_name: str, place: str) -> type[BaseSpider]:
    found = getattr(module, class_name, None)
    if isinstance(found, type) and issubclass(found, BaseSpider):
        return found
    if found is not None:
        raise ConfigError(f"{class_name} in {place} is no spider")
    names = [spider.__name__ for spider in _own_spiders(module)]
    close = difflib.get_close_matches(class_name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else f"spiders there: {', '.join(names) or 'none'}"
    raise ConfigError(f"{place} has no class {class_name}; {hint}")


def _own_spiders(module: ModuleType) -> list[type[BaseSpider]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, BaseSpider)
        and value.__module__ == module.__name__
        and not value.__name__.startswith("_")
    ]


def _parameters(spider: type) -> dict[str, Kind | None]:
    """The parameters of the constructor, and of those to which it passes on its `**kwargs`."""
    found: dict[str, Kind | None] = {}
    for each in spider.__mro__:
        constructor = vars(each).get("__init__")
        if constructor is None:
            continue
        parameters = list(inspect.signature(constructor).parameters.values())[1:]
        hints = _hints(constructor)
        for one in parameters:
            if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY):
                found.setdefault(one.name, _kind(hints.get(one.name), one.default))
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            break
    return found


def _hints(constructor: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(constructor)
    except (NameError, TypeError):
        return {}


def _kind(hint: Any, default: Any) -> Kind | None:
    """How the text of an argument is read; None = it stays text."""
    hints = [each for each in typing.get_args(hint) or (hint,) if each in KINDS]
    return KINDS[hints[0]] if len(hints) == 1 else KINDS.get(type(default))


def _typed(name: str, text: str, kind: Kind | None) -> Any:
    if kind is None:
        return text
    try:
        return kind.parse(text)
    except NotThisKind as error:
        raise ConfigError(f"-a {name}={text}: {error}") from None
