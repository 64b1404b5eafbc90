"""Redirects and deduplication: a page that is reached in two ways is stored once."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

import orbweb
from orbweb.testing.site import OriginLog, SiteThread


def crawl(
    site: SiteThread, paths: list[str], **options: object
) -> tuple[list[str], dict[str, int]]:
    """The URLs of the pages that reached the callback, one after the other, and the reasons."""
    pages: list[str] = []

    class Redirected(orbweb.AirSpider):
        custom_settings: ClassVar = {"CONCURRENT_REQUESTS": 1, "LOG_LEVEL": "ERROR"}

        def start_requests(self):  # type: ignore[no-untyped-def]
            for path in paths:
                yield orbweb.Request(site.url + path, **options)

        def parse(self, request, response):  # type: ignore[no-untyped-def]
            pages.append(response.url.removeprefix(site.url))

    report = Redirected().run()
    return pages, dict(report.run.reasons if report.run else {})


@pytest.fixture
def site(tmp_path: Path):  # type: ignore[no-untyped-def]
    with SiteThread(log=tmp_path / "origin.jsonl") as running:
        yield running


def test_two_redirects_to_one_page_give_it_once(site: SiteThread, tmp_path: Path) -> None:
    pages, reasons = crawl(site, ["/hops?n=1", "/hops?n=2"])
    assert pages == ["/hops?n=0"]
    assert reasons == {"done": 1, "duplicate_redirect": 1}
    asked = OriginLog.read(tmp_path / "origin.jsonl").under("/hops").counts()
    assert asked == {"/hops?n=1": 1, "/hops?n=0": 1, "/hops?n=2": 1}


def test_a_page_that_a_redirect_led_to_is_not_fetched_again(site: SiteThread) -> None:
    pages, reasons = crawl(site, ["/p/5", "/p/6"])
    assert len(pages) == 2
    pages, reasons = crawl(site, ["/p/5", *pages[:1]])
    assert len(pages) == 1
    assert reasons["done"] == 1
    assert sum(reasons.values()) == 2


def test_requests_that_are_not_deduplicated_follow_every_redirect(site: SiteThread) -> None:
    pages, _ = crawl(site, ["/hops?n=1", "/hops?n=2"], filter_repeat=False)
    assert pages == ["/hops?n=0", "/hops?n=0"]
