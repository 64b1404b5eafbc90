"""What `orbweb new` does: it makes a folder with a spider that runs at once."""

from __future__ import annotations

import keyword
import re
import sys
import sysconfig
from dataclasses import dataclass
from importlib.machinery import PathFinder
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

from orbweb.cli import show
from orbweb.errors import ConfigError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9 _-]*").fullmatch

SITE = "python -m orbweb.testing.site --port 7273"

BATCH_SETTINGS = """
BATCH_SQL_URL = "sqlite:///tasks.db"

# A batch begins each hour; a cron line such as "30 3 * * *" says at which times.
BATCH_INTERVAL = 1
BATCH_INTERVAL_UNIT = "hour"
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of project: its files by template, its settings, and how it is begun."""

    templates: tuple[tuple[str, str], ...]
    """Name of the file, with `$module` in it, and its template."""
    settings: str
    steps: tuple[str, ...]


PYTEST = "python -m pytest"

SPIDER = Kind(
    (
        ("spiders/$module.py", "spider.py.txt"),
        ("tests/test_$module.py", "test_spider.py.txt"),
        ("conftest.py", "conftest.py.txt"),
    ),
    "",
    ("orbweb run $module -O $module.csv", PYTEST),
)
TASK = Kind(
    (("$module.py", "task.py.txt"),),
    "",
    (
        """echo '{"id": 1, "category": "coffee"}' | orbweb tasks push $spider -""",
        "orbweb run $module.py",
    ),
)
BATCH = Kind(
    (("$module.py", "batch.py.txt"), ("make_tasks.py", "make_tasks.py.txt")),
    BATCH_SETTINGS,
    (
        "python make_tasks.py",
        "orbweb run $module.py --monitor --once   # one batch",
        "orbweb run $module.py --monitor          # each hour",
        "orbweb batches $module.py",
    ),
)


def new_project(name: str, *, batch: bool, task: bool) -> None:
    """Make the folder `name`. Raises `ConfigError` when it is there or is no good name."""
    if batch and task:
        raise ConfigError("--batch and --task exclude each other")
    folder = Path(name)
    module = module_of(folder.name)
    if folder.exists():
        raise ConfigError(f"{folder} is there already: take another name")
    kind = BATCH if batch else TASK if task else SPIDER
    known = {
        "module": module,
        "spider": class_name_of(folder.name),
        "table": f"{module}_task",
        "more": kind.settings,
    }
    folder.mkdir(parents=True)
    for target, name in (*kind.templates, ("orbweb.toml", "orbweb.toml.txt")):
        file = folder / filled(target, known)
        file.parent.mkdir(exist_ok=True)
        text = filled(template(name), known)
        file.write_text(f"{text.rstrip()}\n", encoding="utf-8")
    steps = [f"cd {folder}", f"{SITE} &   # a small shop of your own", *kind.steps]
    if PYTEST in steps and find_spec("pytest") is None:
        steps[steps.index(PYTEST)] = f"pip install pytest && {PYTEST}"
    show.note(f"{folder} is made. Next:")
    for step in steps:
        show.note(f"  {filled(step, known)}")


def module_of(name: str) -> str:
    """The name of the file of a spider. Raises `ConfigError` when it cannot be one."""
    module = "_".join(_words(name)).lower()
    if not _NAME(name):
        why = "it is made of letters from a to z, digits, - and _, a letter first, such as my-shop"
    elif keyword.iskeyword(module):
        why = f"{module} is a word of Python; right would be my-{module}"
    elif _is_taken(module):
        why = f"it would hide the Python module {module}; right would be my-{module}"
    else:
        return module
    raise ConfigError(f"{name!r} is no good name for a spider: {why}")


def _is_taken(module: str) -> bool:
    """A file of this name stands in the way of Python's own module, or of an installed one."""
    if module == "orbweb" or module in sys.stdlib_module_names:
        return True
    installed = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    found = PathFinder.find_spec(module, installed)
    return found is not None and found.origin is not None


def class_name_of(name: str) -> str:
    """The name of its class: `my-shop` is MyShopSpider."""
    spider = "".join(word[0].upper() + word[1:] for word in _words(name))
    return spider if spider.endswith("Spider") else f"{spider}Spider"


def _words(name: str) -> list[str]:
    return re.findall(r"[A-Za-z0-9]+", name)


def template(name: str) -> str:
    """The text of a template of this package."""
    return files("orbweb.cli").joinpath("templates", name).read_text(encoding="utf-8")


def filled(text: str, known: dict[str, str]) -> str:
    """A template with the names that it asks for."""
    return Template(text).substitute(known)
