"""What `orbweb check` does: recorded pages are parsed again, and what differs is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orbweb.cli import show
from orbweb.cli.target import load_spider
from orbweb.errors import ConfigError
from orbweb.log import mask_secrets
from orbweb.replay.recorded import RecordedPage, write_page, yielded
from orbweb.spiders.account import code_of
from orbweb.testing.recorded import PAGES, Checked, check_pages, recorded

SAME, DIFFERS, NOTHING_CHECKED = 0, 1, 3


@dataclass(frozen=True, slots=True)
class CheckWish:
    """What is asked for on the command line."""

    spider: str | None = None
    folder: Path = PAGES
    changes: tuple[str, ...] = ()
    update: bool = False
    as_json: bool = False


def check(asked: CheckWish) -> int:
    """Print what differs; 1 when something does or a callback fails, 3 when there is no page."""
    if asked.folder != PAGES and not asked.folder.is_dir():
        raise ConfigError(f"there is no folder {asked.folder}")
    pages = recorded(asked.folder)
    if asked.spider is not None:
        pages = _of_spider(pages, asked.spider)
    if not pages:
        whose = f" of {asked.spider}" if asked.spider else ""
        show.note(f"there is no recorded page{whose} in {asked.folder}: orbweb record URL …")
        if asked.as_json:
            show.as_json([])
        return NOTHING_CHECKED
    found = check_pages(pages, asked.changes)
    if asked.update:
        return _update(found, as_json=asked.as_json)
    _print(found, as_json=asked.as_json)
    return DIFFERS if any(each.differences for each in found) else SAME


def _of_spider(pages: Sequence[RecordedPage], target: str) -> list[RecordedPage]:
    kind = load_spider(target)
    names = {target, code_of(kind).file, f"{kind.__module__}:{kind.__name__}"}
    return [page for page in pages if page.spider in names]


def _update(found: Sequence[Checked], *, as_json: bool) -> int:
    """Expect from now on what the callbacks make of the pages; those that fail stay as they are."""
    failed = [each for each in found if each.parsed.error]
    changed = [each for each in found if each.differences and not each.parsed.error]
    for each in changed:
        write_page(each.page.with_expected(yielded(each.parsed)))
    if as_json:
        _print(found, as_json=True)
    else:
        for each in (*changed, *failed):
            _print_one(each)
        print(f"{show.counted(len(changed), 'page')} updated, {len(failed)} failed")
        if changed:
            show.note(f"undo: git checkout -- {' '.join(str(each.page.file) for each in changed)}")
    return DIFFERS if failed else SAME


def _print(found: Sequence[Checked], *, as_json: bool) -> None:
    if as_json:
        show.as_json(
            [
                {
                    "page": str(each.page.file),
                    "spider": each.page.spider,
                    "url": each.page.request["url"],
                    "same": not each.differences,
                    "error": mask_secrets(each.parsed.error) or None,
                    "differences": [mask_secrets(line) for line in each.differences],
                }
                for each in found
            ]
        )
        return
    for each in found:
        _print_one(each)
    wrong = sum(bool(each.differences) for each in found)
    print(f"{show.counted(len(found), 'page')}, {wrong} with differences")
    if wrong:
        show.note("if this is how it shall be: orbweb check --update")


def _print_one(each: Checked) -> None:
    print(f"{'✘' if each.differences else '✔'} {each.page.name}  {each.page.request['url']}")
    for line in each.differences:
        print(f"    {mask_secrets(line)}")
