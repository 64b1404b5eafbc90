"""Engines on virtual time: what a run comes to, with pages good and bad."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.engine_world import SITE, Crawler, ListPipeline, Town, links

from orbweb.download.base import DownloadError, Dropped, Failed
from orbweb.engine.engine import Engine
from orbweb.errors import (
    ItemError,
    NoProxyFree,
    NotRetryError,
    PipelineError,
    StoreUnavailable,
    ValidationError,
)
from orbweb.frontier.base import RunConfig
from orbweb.frontier.memory_state import Place, TimedSet
from orbweb.model.codec import decode, encode
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

TREE = {
    f"{SITE}/a": links("b", "c", "a"),
    f"{SITE}/b": links("d", "e", "c"),
    f"{SITE}/c": links("f"),
    f"{SITE}/d": links(),
    f"{SITE}/e": links(),
    f"{SITE}/f": links("a"),
}


def letters(town: Town) -> dict[str, tuple[str, str, int]]:
    """Dead letters: URL to reason, error, tries."""
    (run,) = town.shard.runs.values()
    return {
        each.task.payload.url: (each.reason, each.error, each.tries) for each in run.dead.values()
    }


def urls(town: Town) -> list[str]:
    return sorted(row["url"].removeprefix(SITE) for row in town.rows)


def test_every_page_is_fetched_once_and_its_items_are_stored() -> None:
    town = Town(TREE)
    (report,) = town.run(town.node(Crawler()))
    assert sorted(town.chain.asked) == sorted(TREE)
    assert urls(town) == ["/a", "/b", "/c", "/d", "/e", "/f"]
    assert (report.exit_code, report.state, report.pages) == (0, "done", 6)
    assert report.as_dict()["items"] == 6
    assert report.as_dict()["dedup_dropped"] == 3


def test_two_nodes_share_the_work_and_both_end() -> None:
    pages = {f"{SITE}/a": links(*map(str, range(60)))}
    pages |= {f"{SITE}/{n}": links() for n in range(60)}
    town = Town(pages, config=RunConfig(lease_ms=10_000, host_concurrency=4))
    reports = town.run(*(town.node(Crawler(), concurrency=16) for _ in range(2)))
    assert sorted(town.chain.asked) == sorted(pages)
    assert [report.exit_code for report in reports] == [0, 0]
    assert min(report.counts["request_ok"] for report in reports) >= 5
    assert town.chain.most_at_once <= 4


def test_a_request_without_a_proxy_comes_again_until_there_is_one_and_loses_no_attempt() -> None:
    lacks = iter(range(7))

    def page(request: Request) -> str:
        if next(lacks, None) is not None:
            raise NoProxyFree("site.test: the proxy pool is empty")
        return links()

    town = Town({f"{SITE}/a": page}, config=RunConfig(lease_ms=10_000, max_retries=0))
    build, engines = town.node(Crawler()), list[Engine]()
    (report,) = town.run(lambda: engines.append(build()) or engines[0])  # type: ignore[func-returns-value]
    assert (report.exit_code, report.pages) == (0, 1)
    assert engines[0].stats.get("no_proxy") == 7
    assert report.counts["retry"] == report.counts["request_failed"] == 0
    assert 7 * 0.5 <= report.counts["elapsed"] <= 7 * 2.0, "about a second each time"
    assert letters(town) == {}


def test_a_node_never_fetches_more_at_once_than_it_may() -> None:
    pages = {f"{SITE}/{n}": links() for n in range(40)}
    town = Town(pages, config=RunConfig(host_concurrency=0))
    town.run(town.node(Crawler(*map(str, range(40))), concurrency=5))
    assert town.chain.most_at_once == 5


def test_joining_a_finished_run_does_nothing_and_says_so() -> None:
    town = Town(TREE)
    town.run(town.node(Crawler()))
    (report,) = town.run(town.node(Crawler()))
    assert (report.exit_code, report.state) == (3, "joined_finished")
    assert "6 pages" in report.why
    assert len(town.chain.asked) == 6


def test_a_run_without_a_good_page_has_its_own_exit_code() -> None:
    town = Town({})
    (report,) = town.run(town.node(Crawler()))
    assert report.exit_code == 3
    assert "1 status_rejected" in report.why


def test_a_failed_fetch_is_tried_again_with_growing_waits() -> None:
    town = Town({f"{SITE}/a": 503})
    (report,) = town.run(town.node(Crawler(), retry_interval_seconds=1.0, retry_backoff=2.0))
    assert len(town.chain.asked) == 4
    assert report.counts["retry"] == 3
    assert 3.5 <= report.elapsed_seconds <= 12
    assert letters(town)[f"{SITE}/a"][0] == "status_rejected"


def test_retry_after_is_followed() -> None:
    late = Failed(
        Request(SITE), Reason.HTTP_ERROR, DownloadError(Reason.HTTP_ERROR, "429"), True, 50.0
    )
    answers = iter([late, links()])
    town = Town({f"{SITE}/a": lambda request: next(answers)})
    (report,) = town.run(town.node(Crawler()))
    assert report.exit_code == 0
    assert 50 <= report.elapsed_seconds <= 64


@pytest.mark.parametrize("reason", [Reason.DNS, Reason.CONNECTION, Reason.ROBOTS_UNREACHABLE])
def test_a_site_that_is_not_there_is_given_up_with_its_true_reason(reason: Reason) -> None:
    error = DownloadError(reason, "robots.txt cannot be had: no such host")
    town = Town({f"{SITE}/a": Failed(Request(SITE), reason, error, True, 30.0)})
    (report,) = town.run(town.node(Crawler()))
    assert len(town.chain.asked) == 4
    assert 90 <= report.elapsed_seconds <= 120
    assert letters(town)[f"{SITE}/a"][0] == reason


def test_what_a_rule_drops_is_counted_and_not_tried_again() -> None:
    text = "robots.txt disallows it"
    dropped = Dropped(
        Request(SITE), Reason.ROBOTS_DISALLOWED, DownloadError(Reason.ROBOTS_DISALLOWED, text)
    )
    town = Town({f"{SITE}/a": links("b"), f"{SITE}/b": lambda request: dropped})
    (report,) = town.run(town.node(Crawler()))
    assert report.counts["robots_dropped"] == 1
    assert report.run is not None
    assert report.run.reasons["robots_disallowed"] == 1
    assert letters(town) == {}


@pytest.mark.parametrize(
    "text",
    [
        *("{}: 5000 bytes announced", "HTTP status 503 for {}", "{} redirects to 'ftp://x'"),
        "http://site.test/robots.txt disallows {} for 'x'",
    ],
)
def test_a_line_of_the_log_names_its_page_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "orbweb")
    url = f"{SITE}/a"
    error = DownloadError(Reason.TOO_LARGE, text.format(url))
    for outcome, lines in (
        (Failed(Request(url), Reason.TOO_LARGE, error, True), 4),
        (Dropped(Request(url), Reason.CONTENT_TYPE, error), 1),
    ):
        caplog.clear()
        town = Town({url: outcome})
        town.run(town.node(Crawler()))
        told = [line for line in caplog.messages if url in line]
        assert len(told) == lines
        assert [line.count(url) for line in told] == [1] * lines


class Breaking(Crawler):
    """Raises in the middle of the page."""

    error: Exception = ValueError("no price")

    def parse(self, request: Any, response: Any) -> Any:
        yield {"url": request.url}
        yield response.follow("/child", callback=self.parse_child)
        raise self.error

    def parse_child(self, response: Any) -> Any:
        return [{"url": response.url}]


@pytest.mark.parametrize(
    ("error", "tries", "reason"),
    [
        (ValueError("no price"), 4, "callback_error"),
        (ValidationError("a login page"), 4, "validation"),
        (NotRetryError("gone"), 1, "not_retry"),
    ],
)
def test_a_callback_that_raises_half_way_loses_nothing_it_found(
    error: Exception, tries: int, reason: str
) -> None:
    town = Town({f"{SITE}/a": links(), f"{SITE}/child": links()})
    spider = Breaking()
    spider.error = error
    (report,) = town.run(town.node(spider))
    assert town.chain.asked.count(f"{SITE}/a") == tries
    assert urls(town) == ["/a", "/child"]
    assert letters(town)[f"{SITE}/a"][0] == reason
    assert str(error) in letters(town)[f"{SITE}/a"][1]
    assert report.counts["request_failed"] == 1


def test_items_of_a_page_that_failed_and_then_went_well_keep_their_keys() -> None:
    class Flaky(Crawler):
        tries = 0

        def parse(self, request: Any, response: Any) -> Any:
            for n in range(2450):
                yield {"url": request.url, "n": n}
            self.tries += 1
            if self.tries == 1:
                raise OSError("disk")

    town = Town({f"{SITE}/a": links()})
    town.run(town.node(Flaky()))
    assert len(town.rows) > 2450
    assert len({row["_key"] for row in town.rows}) == 2450


def test_failed_request_may_yield_when_a_request_is_given_up() -> None:
    class Saving(Crawler):
        seen: list[str]

        def exception_request(self, request: Any, response: Any, exc: Exception) -> None:
            self.seen = [*getattr(self, "seen", []), str(exc)]

        def failed_request(self, request: Any, response: Any) -> Any:
            yield {"url": "lost"}
            yield Request(f"{SITE}/b")

    town = Town({f"{SITE}/a": 500, f"{SITE}/b": links()})
    spider = Saving()
    town.run(town.node(spider))
    assert spider.seen == ["500"] * 3
    assert sorted(row["url"] for row in town.rows) == [f"{SITE}/b", "lost"]
    assert letters(town)[f"{SITE}/a"][0] == "status_rejected"


def test_validate_false_drops_the_page() -> None:
    class Choosy(Crawler):
        def validate(self, request: Any, response: Any) -> bool:
            return not response.url.endswith("/b")

    town = Town(TREE)
    (report,) = town.run(town.node(Choosy()))
    assert urls(town) == ["/a", "/c", "/f"]
    assert report.run is not None
    assert report.run.reasons["validation"] == 1


def test_an_unknown_callback_becomes_a_dead_letter_without_a_fetch() -> None:
    class Typo(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            yield Request(f"{SITE}/b", callback="parse_detial")
            yield Request(f"{SITE}/c", callback="parse_detail")

        def parse_detail(self, request: Any, response: Any) -> Any:
            yield {"url": request.url}

    town = Town(TREE)
    town.run(town.node(Typo()))
    assert urls(town) == ["/c"]
    assert f"{SITE}/b" not in town.chain.asked
    reason, error, _ = letters(town)[f"{SITE}/b"]
    assert reason == "unknown_callback"
    assert "parse_detial" in error


def test_broken_text_in_an_error_is_kept_in_a_form_that_can_be_written() -> None:
    class Odd(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            raise ValueError("price \ud800")

    town = Town({f"{SITE}/a": links()}, config=RunConfig(max_retries=0))
    town.run(town.node(Odd()))
    _, error, _ = letters(town)[f"{SITE}/a"]
    assert error.startswith(r"ValueError: price \ud800 (")
    error.encode()


def test_an_output_that_is_nothing_known_is_named() -> None:
    class Odd(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            yield {"url": request.url}
            yield 7

    town = Town({f"{SITE}/a": links()}, config=RunConfig(max_retries=0))
    town.run(town.node(Odd()))
    reason, error, _ = letters(town)[f"{SITE}/a"]
    assert reason == "callback_error"
    assert "int" in error
    assert urls(town) == ["/a"]


def test_a_bad_item_is_kept_as_a_dead_letter_and_the_others_are_stored() -> None:
    class Picky(ListPipeline):
        async def save_items(self, table: str, items: list[dict[str, Any]]) -> bool:
            if any(item["url"].endswith("/b") for item in items):
                raise ItemError("url: /b cannot be stored")
            return await super().save_items(table, items)

    town = Town(TREE, pipelines={"list": Picky()})
    (report,) = town.run(town.node(Crawler()))
    assert urls(town) == ["/a", "/c", "/d", "/e", "/f"]
    reason, error, _ = letters(town)[f"{SITE}/b"]
    assert reason == "item_rejected"
    assert "/b cannot be stored" in error
    assert report.counts["items"] == 5
    assert report.counts["item_failed"] == 1


class Bytes:
    """Requests travel as bytes, as through a store."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


def test_a_link_that_cannot_travel_is_named_and_the_others_enter() -> None:
    class Local(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            yield {"url": request.url}
            yield Request(f"{SITE}/b", cb_kwargs={"client": object()})
            yield Request(f"{SITE}/c", callback=lambda request, response: None)
            yield Request(f"{SITE}/d")

    town = Town({f"{SITE}/a": links(), f"{SITE}/d": links()}, codec=Bytes())
    (report,) = town.run(town.node(Local()))
    assert town.chain.asked == [f"{SITE}/a", f"{SITE}/d"]
    assert report.reasons["not_serializable"] == 4 + 2, "four links and their two pages"
    (run,) = town.shard.runs.values()
    buried = {decode(each.task.payload).url: each for each in run.dead.values()}
    assert set(buried) == {f"{SITE}/a", f"{SITE}/d"}
    assert buried[f"{SITE}/a"].reason == "not_serializable"
    assert "client" in buried[f"{SITE}/a"].error
    assert urls(town) == ["/a", "/d"]


def test_a_stored_request_that_cannot_be_read_is_a_dead_letter() -> None:
    town = Town(TREE, codec=Bytes())
    store = town.frontier()
    push = store.seed_push

    async def spoiling(token: str, batch: int, final: bool, requests: Any, refused: Any) -> Any:
        spoiled = [each._replace(payload=b"\xff?") for each in requests]
        return await push(token, batch, final, spoiled, refused)

    store.seed_push = spoiling  # type: ignore[method-assign]
    (report,) = town.run(town.node(Crawler(), frontier=store))
    assert report.exit_code == 3
    assert report.run is not None
    assert report.run.reasons == {"undecodable": 1}


class Long(Crawler):
    """Yields thousands of links, and then takes its time."""

    async def parse(self, request: Any, response: Any) -> Any:
        for n in range(3500):
            yield Request(f"{SITE}/{n}", callback="parse_leaf", filter_repeat=n % 7 > 0)
        await asyncio.sleep(60)

    def parse_leaf(self, response: Any) -> Any:
        yield {"url": response.url}


LONG = {f"{SITE}/a": links()} | {f"{SITE}/{n}": links() for n in range(3500)}


def test_links_of_a_long_page_are_fetched_before_its_end() -> None:
    town = Town(LONG, config=RunConfig(host_concurrency=0))
    early: list[int] = []

    async def look(engine: Any) -> None:
        await asyncio.sleep(50)
        early.append(len(town.chain.asked))

    node = town.node(Long(), concurrency=100, max_held=400)
    (report,) = town.drive([town.start(node, look)])
    assert early[0] > 2000
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == sorted(LONG), "each once"


def test_a_store_that_forgets_early_links_gets_them_again_with_the_ack() -> None:
    town = Town(LONG, config=RunConfig(host_concurrency=0))

    async def roll_back(engine: Any) -> None:
        (run,) = town.shard.runs.values()
        await asyncio.sleep(0.15)
        assert len(run.tasks) > 1000
        for id in [id for id, task in run.tasks.items() if task.place is Place.QUEUED]:
            run.seen.forget(int(id, 16) - (int(id, 16) >> 63 << 64), "", 0)
            del run.tasks[id]
        run.queues.clear()
        run.ready = TimedSet()
        run.emitted.clear()

    node = town.node(Long(), concurrency=100, max_held=400)
    (report,) = town.drive([town.start(node, roll_back)])
    assert report.exit_code == 0
    assert set(town.chain.asked) == set(LONG)


def test_links_that_are_not_wanted_are_counted_by_reason() -> None:
    class Wide(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            yield from response.follow_all(["/b", "http://else.test/", "/" + "x" * 200, "mailto:x"])

    town = Town({f"{SITE}/a": links(), f"{SITE}/b": links()})
    node = town.node(
        Wide(), allowed_domains=frozenset({"site.test"}), url_length_limit=100, depth_limit=1
    )
    (report,) = town.run(node)
    assert town.chain.asked == [f"{SITE}/a", f"{SITE}/b"]
    assert report.reasons == {
        "done": 2,
        "offsite": 1,
        "url_length": 2,
        "scheme": 2,
        "depth_limit": 2,
    }


def test_a_page_may_ask_for_itself_again_without_deduplication() -> None:
    class Polling(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            yield {"url": request.url, "depth": request.depth}
            if request.depth < 3:
                yield Request(request.url, filter_repeat=False)

    town = Town({f"{SITE}/a": links()})
    town.run(town.node(Polling()))
    assert [row["depth"] for row in town.rows] == [0, 1, 2, 3]


def test_one_item_object_that_is_changed_and_yielded_again_gives_two_rows() -> None:
    class Reusing(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            item = {"url": "1"}
            yield item
            item["url"] = "2"
            yield item

    town = Town({f"{SITE}/a": links()})
    town.run(town.node(Reusing()))
    assert [row["url"] for row in town.rows] == ["1", "2"]


@pytest.mark.parametrize("kind", ["async_generator", "coroutine", "list", "none", "single", "call"])
def test_callbacks_of_every_kind(kind: str) -> None:
    called: list[str] = []

    class Kinds(Crawler):
        async def async_generator(self, request: Any, response: Any) -> Any:
            await asyncio.sleep(0.01)
            yield {"url": request.url}

        async def coroutine(self, response: Any) -> Any:
            return [{"url": response.url}]

        def list(self, response: Any, extra: int) -> Any:
            return [{"url": response.url, "extra": extra}]

        def none(self, request: Any, response: Any) -> None:
            called.append("none")

        def single(self, response: Any) -> Any:
            return {"url": response.url}

        def call(self, request: Any, response: Any) -> Any:
            yield lambda: called.append("call")

        def start_requests(self) -> Any:
            kwargs = {"extra": 1} if kind == "list" else {}
            yield Request(f"{SITE}/a", callback=kind, cb_kwargs=kwargs)

    town = Town({f"{SITE}/a": links()})
    (report,) = town.run(town.node(Kinds()))
    assert report.exit_code == 0
    assert len(town.rows) + len(called) == 1


def test_hooks_around_the_run_are_called_once() -> None:
    class Hooked(Crawler):
        calls: tuple[str, ...] = ()

        def start_callback(self) -> None:
            self.calls += ("start",)

        async def end_callback(self) -> None:
            self.calls += ("end",)

    town, spider = Town(TREE), Hooked()
    town.run(town.node(spider))
    assert spider.calls == ("start", "end")


def test_a_fetch_that_needs_the_store_waits_for_it_and_costs_no_retry() -> None:
    failures = iter(range(5))

    def page(request: Request) -> str:
        if next(failures, None) is not None:
            raise StoreUnavailable("robots of the site")
        return links()

    town = Town({f"{SITE}/a": page}, config=RunConfig(max_retries=1))
    (report,) = town.run(town.node(Crawler()))
    assert report.exit_code == 0
    assert report.counts["retry"] == 0
    assert urls(town) == ["/a"]


def test_an_error_of_the_spiders_own_pipeline_client_is_a_callback_error() -> None:
    class Own(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            raise PipelineError("my own client failed")

    town = Town({f"{SITE}/a": links()}, config=RunConfig(max_retries=1))
    town.run(town.node(Own()))
    assert letters(town)[f"{SITE}/a"][0] == "callback_error"
    assert len(town.chain.asked) == 2


def test_a_lost_answer_is_asked_for_again_with_the_same_arguments() -> None:
    town = Town(TREE)
    store = town.frontier()
    calls: list[tuple[str, Any]] = []
    for name in ("claim", "ack", "seed_push", "seed_claim", "renew"):
        setattr(store, name, _losing_every_third(getattr(store, name), name, calls))
    (report,) = town.run(town.node(Crawler(), frontier=store))
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == sorted(TREE)
    assert urls(town) == ["/a", "/b", "/c", "/d", "/e", "/f"]
    claims = [args[1] for name, args in calls if name == "claim"]
    assert sorted(set(claims)) == list(range(1, max(claims) + 1))
    assert len(claims) > max(claims)


def _losing_every_third(method: Any, name: str, calls: list[tuple[str, Any]]) -> Any:
    count = 0

    async def call(*args: Any) -> Any:
        nonlocal count
        count += 1
        calls.append((name, args))
        answer = await method(*args)
        if count % 3 == 1:
            raise StoreUnavailable("the answer was lost")
        return answer

    return call


def test_a_run_that_vanishes_is_an_error_and_not_an_end() -> None:
    town = Town(TREE)

    async def reset(engine: Any) -> None:
        await asyncio.sleep(0.15)
        town.shard.runs.clear()

    (report,) = town.drive([town.start(town.node(Crawler()), reset)])
    assert (report.exit_code, report.state) == (1, "failed")
    assert "RunLost" in report.why


def test_stop_after_counts_good_pages_and_the_run_goes_on_later() -> None:
    pages = {f"{SITE}/{n}": links() for n in range(30)}
    town = Town(pages)
    spider = Crawler(*map(str, range(30)))
    (report,) = town.run(town.node(spider, stop_after_pages=7))
    assert (report.exit_code, report.state) == (75, "stopped")
    assert len(town.chain.asked) == 7
    (report,) = town.run(town.node(spider))
    assert report.exit_code == 0
    assert sorted(town.chain.asked) == sorted(pages)


def test_a_time_limit_stops_the_node() -> None:
    town = Town({f"{SITE}/a": links("b"), f"{SITE}/b": links()}, seconds=10.0)
    (report,) = town.run(town.node(Crawler(), max_runtime_seconds=12.0, graceful_seconds=2.0))
    assert report.exit_code == 75
    assert 12 <= report.elapsed_seconds <= 16
    (report,) = town.run(town.node(Crawler()))
    assert report.exit_code == 0
    assert report.run is not None
    assert report.run.retried == 0


def test_an_operator_can_end_a_resident_run() -> None:
    town = Town(TREE, config=RunConfig(lease_ms=10_000, keep_alive=True))
    operator = town.frontier()

    async def stop_later(engine: Any) -> None:
        await asyncio.sleep(60)
        await operator.open(town.config)
        await operator.stop()

    (report,) = town.drive([town.start(town.node(Crawler()), stop_later)])
    assert report.exit_code == 0
    assert 60 <= report.elapsed_seconds <= 62
    assert urls(town) == ["/a", "/b", "/c", "/d", "/e", "/f"]


class Quitting(Crawler):
    """Async callbacks that end more than themselves."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__("a", "b")
        self.raised = raised

    async def parse(self, request: Request, response: Response) -> Any:
        yield {"url": request.url}
        if request.url.endswith("/b"):
            raise self.raised


@pytest.mark.parametrize("raised", [SystemExit(0), asyncio.CancelledError()])
def test_a_callback_that_quits_or_cancels_itself_loses_its_page_only(
    raised: BaseException,
) -> None:
    town = Town({f"{SITE}/a": links(), f"{SITE}/b": links()})
    (report,) = town.run(town.node(Quitting(raised)))
    assert report.exit_code == 0
    reason, error, _ = letters(town)[f"{SITE}/b"]
    assert (reason, type(raised).__name__ in error) == ("callback_error", True)


def test_seeds_of_a_generator_that_cancels_itself_are_not_taken_for_all() -> None:
    class Cancelling(Crawler):
        async def start_requests(self) -> Any:
            yield Request(f"{SITE}/a")
            raise asyncio.CancelledError

    town = Town({f"{SITE}/a": links()})
    (report,) = town.run(town.node(Cancelling()))
    assert report.exit_code == 1
    assert "CancelledError" in report.why


@pytest.mark.parametrize("priority", [2**19 + 1, -(10**30)])
def test_a_priority_out_of_range_costs_that_request_only(priority: int) -> None:
    class Urgent(Crawler):
        def start_requests(self) -> Any:
            yield Request(f"{SITE}/b", priority=priority)
            yield Request(f"{SITE}/a", priority=2**19)

        def parse(self, request: Request, response: Response) -> Any:
            yield {"url": request.url}
            yield Request(f"{SITE}/c", priority=priority)

    town = Town(TREE)
    (report,) = town.run(town.node(Urgent()))
    assert town.chain.asked == [f"{SITE}/a"]
    assert report.as_dict()["reasons"]["not_serializable"] >= 1


def test_a_node_clears_away_past_runs_also_after_an_outage() -> None:
    cleared = iter([200, StoreUnavailable("away"), 7])
    calls: list[Any] = []

    async def collect() -> int:
        calls.append(next(cleared, 0))
        if isinstance(calls[-1], Exception):
            raise calls[-1]
        return int(calls[-1])

    town = Town({f"{SITE}/a": links()}, seconds=300.0)
    (report,) = town.run(town.node(Crawler(), collect=collect))
    assert report.exit_code == 0
    assert [str(call) for call in calls[:4]] == ["200", "away", "7", "0"]


def test_the_first_bad_link_of_a_callback_is_told_with_what_is_wrong(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Relative(Crawler):
        def parse(self, request: Request, response: Response) -> Any:
            yield Request("/b")
            yield Request("/c")

    town = Town(TREE)
    (report,) = town.run(town.node(Relative()))
    (told,) = [text for text in caplog.messages if "not taken" in text]
    assert told.startswith(f"link on {SITE}/a not taken (bad_url): /b: it has no scheme; write")
    assert report.as_dict()["run"]["reasons"] == {"done": 1, "bad_url": 2}


def test_an_error_of_ours_in_a_callback_shows_the_line_of_the_spider(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Blind(Crawler):
        def parse(self, request: Request, response: Response) -> Any:
            yield response.follow(response.css("a.none::attr(href)").get())

    town = Town(TREE)
    town.run(town.node(Blind()))
    assert "a.none::attr(href)" in caplog.text
    assert caplog.text.count("Traceback") == 1
