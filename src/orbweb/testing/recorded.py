"""Recorded pages in the tests of a project: they are parsed again, offline.

`orbweb record` writes the pages and a test that uses this; `orbweb check` does the same without
pytest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orbweb.cli.options import overrides
from orbweb.cli.target import load_spider, make_spider
from orbweb.errors import ConfigError
from orbweb.replay.recorded import RecordedPage, differences, read_page, yielded
from orbweb.replay.reparse import parse_pages
from orbweb.replay.trial import Parsed
from orbweb.spiders.start import Start, settings_of

__all__ = ["RecordedPage", "check_page", "recorded"]

PAGES = Path("tests", "pages")
"""Where `orbweb record` puts them, as seen from the project."""


@dataclass(frozen=True, slots=True)
class Checked:
    """A page, what the spider makes of it now, and what differs."""

    page: RecordedPage
    parsed: Parsed
    differences: tuple[str, ...]


def recorded(folder: Path) -> list[RecordedPage]:
    """The pages of a folder, by their names. Raises `ConfigError` for files that are none."""
    return [read_page(file) for file in sorted(folder.glob("*.json"))]


def check_page(page: RecordedPage) -> list[str]:
    """What differs from what was recorded, a line each; empty when nothing does.

    An exception of the spider is a difference too. Raises `ConfigError` when there is no such
    spider.
    """
    (checked,) = check_pages([page])
    return list(checked.differences)


def check_pages(pages: Iterable[RecordedPage], changes: Sequence[str] = ()) -> list[Checked]:
    """The same for many pages; `changes` are settings (KEY=VALUE)."""
    groups: dict[tuple[str, ...], list[RecordedPage]] = {}
    for page in pages:
        words = (page.spider, *(f"{k}={v}" for k, v in sorted(page.arguments.items())))
        groups.setdefault(words, []).append(page)
    return [checked for group in groups.values() for checked in _check(group, changes)]


def _check(pages: Sequence[RecordedPage], changes: Sequence[str]) -> list[Checked]:
    first = pages[0]
    root = _root(first)
    place, _, class_name = first.spider.rpartition(":")
    target = f"{root / place}:{class_name}" if place.endswith(".py") else first.spider
    spider = make_spider(load_spider(target), first.arguments)
    settings = settings_of(spider, Start(overrides(changes, None), directory=root))
    found = parse_pages(spider, settings, pages)
    return [Checked(*each, _wrong(*each)) for each in zip(pages, found, strict=True)]


def _wrong(page: RecordedPage, parsed: Parsed) -> tuple[str, ...]:
    if parsed.error:
        return (f"{parsed.reason}: {parsed.error}", *parsed.lost)
    return (*parsed.lost, *differences(page, yielded(parsed)))


def _root(page: RecordedPage) -> Path:
    """The directory from which the spider's file is named."""
    file = Path(page.spider.rpartition(":")[0])
    if file.suffix != ".py":
        return Path()
    for root in (Path(), *page.file.resolve().parents):
        if (root / file).is_file():
            return root
    raise ConfigError(f"{page.file}: there is no spider {file} here or above the page")
