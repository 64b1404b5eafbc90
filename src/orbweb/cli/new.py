"""What `orbweb new` does: it makes a folder with a spider that runs at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from orbweb.cli import show
from orbweb.errors import ConfigError

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


SPIDER = Kind(
    (("$module.py", "spider.py.txt"),),
    "",
    ("orbweb run $module.py",),
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
    words = re.findall(r"[A-Za-z0-9]+", folder.name)
    module = "_".join(words).lower()
    if not module.isidentifier() or module == "orbweb":
        raise ConfigError(f"{name!r} is no good name for a spider: letters first, such as shop")
    if folder.exists():
        raise ConfigError(f"{folder} is there already: take another name")
    kind = BATCH if batch else TASK if task else SPIDER
    spider = "".join(word[0].upper() + word[1:] for word in words)
    known = {
        "module": module,
        "spider": spider if spider.endswith("Spider") else f"{spider}Spider",
        "table": f"{module}_task",
        "more": kind.settings,
    }
    folder.mkdir(parents=True)
    for target, template in (*kind.templates, ("orbweb.toml", "orbweb.toml.txt")):
        text = _filled(_template(template), known)
        (folder / _filled(target, known)).write_text(f"{text.rstrip()}\n", encoding="utf-8")
    steps = [f"cd {folder}", f"{SITE} &   # a small shop of your own", *kind.steps]
    show.note(f"{folder} is made. Next:")
    for step in steps:
        show.note(f"  {_filled(step, known)}")


def _template(name: str) -> str:
    return files("orbweb.cli").joinpath("templates", name).read_text(encoding="utf-8")


def _filled(text: str, known: dict[str, str]) -> str:
    return Template(text).substitute(known)
