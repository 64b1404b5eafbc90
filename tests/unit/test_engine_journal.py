"""The crawl log gets a line for each outcome that the store has taken, and for links not taken."""

from __future__ import annotations

from typing import Any

from tests.unit.engine_world import SITE, Crawler, Town
from tests.unit.test_engine_redirects import to

from orbweb.download.base import DownloadError, Dropped, Failed
from orbweb.engine.journal import page_id
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.monitor.crawl_line import CrawlLine, time_ms


def page(*hrefs: str) -> str:
    return "<html>" + "".join(f'<a href="{href}">x</a>' for href in hrefs) + "</html>"


class Lines:
    """See `CrawlLog`."""

    def __init__(self) -> None:
        self.all: list[CrawlLine] = []

    def write(self, line: CrawlLine) -> None:
        self.all.append(line)

    def of(self, path: str) -> list[CrawlLine]:
        return [line for line in self.all if line.url.endswith(path)]


def crawl(pages: dict[str, Any], *nodes: Crawler, **options: Any) -> Lines:
    lines, town = Lines(), Town(pages)
    town.run(*(town.node(spider, crawl_log=lines, **options) for spider in nodes))
    return lines


class Shop(Crawler):
    def start_requests(self) -> Any:
        yield Request(f"{SITE}/")

    def parse(self, request: Request, response: Any) -> Any:
        yield {"url": request.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


def test_a_page_that_is_done_is_one_line_with_all_that_is_known() -> None:
    lines = crawl({f"{SITE}/": page("/a"), f"{SITE}/a": page()}, Shop())
    first, second = lines.all
    assert (first.kind, first.reason, first.url) == ("done", "done", f"{SITE}/")
    assert (first.status, first.items, first.links, first.attempt) == (200, 1, 1, 1)
    assert first.bytes > 0
    assert first.ms == 100
    assert first.node == "node1"
    assert first.id == page_id(Request(f"{SITE}/"))
    assert first.parent == ""
    assert (second.url, second.parent, second.depth) == (f"{SITE}/a", first.id, 1)
    assert first.page == ""
    assert time_ms(second.time) > time_ms(first.time)


def test_each_attempt_is_a_line() -> None:
    lines = crawl({f"{SITE}/": 503}, Shop())
    assert [line.kind for line in lines.all] == ["retry", "retry", "retry", "failed"]
    assert [line.attempt for line in lines.all] == [1, 2, 3, 4]
    assert {line.reason for line in lines.all} == {"status_rejected"}
    assert all(line.wait_ms > 0 for line in lines.all[:3])
    assert lines.all[-1].wait_ms == 0
    assert "503" in lines.all[-1].error


def test_what_a_rule_drops_is_a_line_with_the_rule() -> None:
    error = DownloadError(Reason.ROBOTS_DISALLOWED, "line 2: Disallow: /")
    dropped = Dropped(Request(f"{SITE}/"), Reason.ROBOTS_DISALLOWED, error)
    (line,) = crawl({f"{SITE}/": dropped}, Shop()).all
    assert (line.kind, line.reason, line.error) == (
        "dropped",
        "robots_disallowed",
        "line 2: Disallow: /",
    )


def test_a_redirect_to_another_host_says_where_it_leads() -> None:
    target = "http://other.test/b"
    lines = crawl({f"{SITE}/": to(target), target: page()}, Shop())
    first, second = lines.all
    assert (first.kind, first.to, first.to_id) == ("redirected", target, second.id)
    assert second.parent == first.id


def test_links_that_are_not_taken_are_lines_once_each() -> None:
    class Refusing(Shop):
        def start_requests(self) -> Any:
            yield Request(f"{SITE}/")
            yield Request("ftp://files.test/x")
            yield Request("http://", method="POST")

    menu = page("/deep", "http://elsewhere.test/", "mailto:a@b.test", "/deep")
    pages = {f"{SITE}/": menu, f"{SITE}/deep": page("/deeper", "mailto:a@b.test")}
    lines = crawl(pages, Refusing(), depth_limit=1, allowed_domains=frozenset({"site.test"}))
    skipped = {line.url: line for line in lines.all if line.kind == "skipped"}
    assert {url: line.reason for url, line in skipped.items()} == {
        "ftp://files.test/x": "scheme",
        "http://": "bad_url",
        "mailto:a@b.test": "scheme",
        "http://elsewhere.test/": "offsite",
        f"{SITE}/deeper": "depth_limit",
    }
    assert sum(line.kind == "skipped" for line in lines.all) == len(skipped)
    assert skipped[f"{SITE}/deeper"].parent == page_id(Request(f"{SITE}/deep"))
    assert skipped["http://"].parent == ""
    assert len({line.id for line in skipped.values()}) == len(skipped)


def test_a_request_that_is_given_back_untouched_has_no_line() -> None:
    lines, town = Lines(), Town({f"{SITE}/{n}": page() for n in range(6)})

    class Seeds(Shop):
        def start_requests(self) -> Any:
            yield from (Request(f"{SITE}/{n}") for n in range(6))

    town.run(town.node(Seeds(), crawl_log=lines, stop_after_pages=2, concurrency=2))
    assert {line.kind for line in lines.all} == {"done"}
    town.run(town.node(Seeds(), crawl_log=lines))
    assert sorted(line.url for line in lines.all) == sorted(town.pages)


def test_a_request_that_may_be_repeated_is_also_found_by_its_page() -> None:
    class Again(Shop):
        def start_requests(self) -> Any:
            yield Request(f"{SITE}/", filter_repeat=False)

    (line,) = crawl({f"{SITE}/": page()}, Again()).all
    assert line.page == page_id(Request(f"{SITE}/"))
    assert line.id != line.page
    assert line.keys == (line.id, line.page)


def test_a_page_that_is_kept_as_failed_after_its_callback_keeps_its_status() -> None:
    class Broken(Shop):
        def parse(self, request: Request, response: Any) -> Any:
            raise KeyError("price")

    lines = crawl({f"{SITE}/": page()}, Broken())
    last = lines.all[-1]
    assert (last.kind, last.reason, last.status) == ("failed", "callback_error", 200)
    assert "price" in last.error


def test_a_failure_without_an_answer_has_no_status() -> None:
    error = DownloadError(Reason.DNS, "no such host", retry=False)
    failed = Failed(Request(f"{SITE}/"), Reason.DNS, error, retry=False)
    (line,) = crawl({f"{SITE}/": failed}, Shop()).all
    assert (line.kind, line.reason, line.status, line.bytes) == ("failed", "dns", 0, 0)
    assert line.ms == 100
