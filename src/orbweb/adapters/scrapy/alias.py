"""Orbweb under scrapy-redis's name, for projects whose spiders import from it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from orbweb.errors import ConfigError

NAME = "scrapy_redis"
TARGET = "orbweb.adapters.scrapy"


class _Alias(MetaPathFinder, Loader):
    """Gives the module of ours for each module of scrapy-redis."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname == NAME or fullname.startswith(f"{NAME}.")
        return spec_from_loader(fullname, self) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(TARGET + spec.name.removeprefix(NAME))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It was executed under its own name, which it keeps."""
        if module.__spec__ is not None:
            module.__spec__ = module.__spec__.loader_state


def refuse_originals(spider: type) -> None:
    """Raise `ConfigError` for a spider of scrapy-redis itself: nobody would read its entries."""
    if any(kind.__module__.partition(".")[0] == NAME for kind in spider.__mro__):
        raise ConfigError(
            f"{spider.__name__} derives from scrapy-redis's own class, with Orbweb's scheduler. "
            "Right would be orbweb.adapters.scrapy.spiders, or install_as_scrapy_redis() at the "
            "beginning of settings.py, by which scrapy_redis means Orbweb's package"
        )


def install_as_scrapy_redis() -> None:
    """Let `import scrapy_redis` mean this package, in this process. Call it in `settings.py`.

    Raises `ConfigError` when scrapy-redis itself was imported before.
    """
    loaded = sys.modules.get(NAME)
    if loaded is not None and loaded.__name__ != TARGET:
        raise ConfigError(
            f"scrapy-redis was imported before ({loaded.__file__}): call "
            "install_as_scrapy_redis() at the beginning of settings.py"
        )
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
