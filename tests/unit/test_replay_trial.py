"""Pages by hand: what a spider makes of them, and what would become of their links."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.unit.engine_world import SITE, FakeChain, links, run_inline

from orbweb.download.base import Redirected
from orbweb.download.robots_entry import EntryKind, RobotsEntry
from orbweb.engine.callbacks import Callbacks
from orbweb.engine.job_rules import JobRules
from orbweb.errors import NotRetryError, ValidationError
from orbweb.frontier.base import DeadLetter
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.urls import Place, SeenMark, UrlState, Wanted
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.replay.bench import Bench
from orbweb.replay.gate import Manners
from orbweb.replay.prompt import Prompt, written
from orbweb.replay.subject import Finder
from orbweb.replay.trial import Trial, items_of
from orbweb.replay.verdicts import Judge, LinkVerdict
from orbweb.replay.words import diff_lines
from orbweb.spiders.air import AirSpider
from orbweb.spiders.base import BaseParser
from orbweb.spiders.codecs import WireCodec

NEW = SeenMark(SeenKind.EXACT, shared=False)
SEEN = SeenMark(SeenKind.EXACT, shared=False, part=1)


class Shop(AirSpider):
    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")

    def parse_odd(self, response: Any) -> Any:
        yield {"half": True}
        raise KeyError("price")


def bench(
    pages: dict[str, Any],
    spider: Any = None,
    rules: JobRules | None = None,
    *,
    look: Any = None,
    robots: bytes | None = None,
) -> Bench:
    spider, rules = spider or Shop(), rules or JobRules()
    callbacks = Callbacks(spider, run_inline, BaseParser)
    trial = Trial(
        FakeChain(pages, 0.0),  # type: ignore[arg-type]
        callbacks,
        WireCodec(),
        rules.links,
        Manners(0.0, None, clock=time.monotonic),
        default_table="items",
    )

    async def entry(origin: str) -> bytes | None:
        return robots

    return Bench(spider, trial, Judge(rules, entry, look, callbacks.knows), Finder(None, None))


async def judged(stand: Bench, page: str = "a") -> dict[str, LinkVerdict]:
    (visit,) = await stand.crawl(Request(f"{SITE}/{page}"), None, 1, 9)
    return {each.request.url.removeprefix(SITE): each for each in visit.verdicts}


async def test_items_and_links_of_a_page() -> None:
    (visit,) = await bench({f"{SITE}/a": links("b", "c")}).crawl(Request(f"{SITE}/a"), None, 1, 9)
    assert items_of(visit.parsed.items) == [{"url": f"{SITE}/a"}]
    assert [(each.request.url, each.queued) for each in visit.verdicts] == [
        (f"{SITE}/b", True),
        (f"{SITE}/c", True),
    ]
    assert visit.verdicts[0].request.depth == 1


async def test_each_link_says_which_rule_keeps_it_out() -> None:
    rules = JobRules(
        url_length_limit=40, allowed_domains=("site.test",), drop_query_params=("utm_*",)
    )
    names = ("b", "b?utm_source=x", "a", "private/x", "x" * 50)
    away = '<a href="mailto:x@y.example">m</a><a href="http://off.example/">o</a>'
    page = away + links(*names)
    robots = RobotsEntry(EntryKind.RULES, b"User-agent: *\nDisallow: /private/").encode()
    found = await judged(bench({f"{SITE}/a": page}, rules=rules, robots=robots))
    assert {url: str(each.reason) for url, each in found.items()} == {
        "/b": "queued",
        "/b?utm_source=x": "duplicate_request",
        "/a": "duplicate_request",
        "/private/x": "robots_disallowed",
        f"/{'x' * 50}": "url_length",
        "mailto:x@y.example": "scheme",
        "http://off.example/": "offsite",
    }
    failing = {
        url: [check.name for check in each.checks if check.passed is False]
        for url, each in found.items()
        if not each.queued
    }
    assert failing == {
        "/b?utm_source=x": ["dedup"],
        "/a": ["dedup"],
        "/private/x": ["robots"],
        f"/{'x' * 50}": ["length"],
        "mailto:x@y.example": ["url"],
        "http://off.example/": ["domain"],
    }
    assert 'line 2 "Disallow: /private/"' in found["/private/x"].text


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (UrlState(0, "running", Place.NOWHERE, SEEN), "known since generation 1"),
        (
            UrlState(
                0,
                "running",
                Place.NOWHERE,
                SEEN,
                dead=DeadLetter("8f3a00000", "timeout", "", 1, 0, "h", 0, b""),
            ),
            "orbweb shell failed:8f3a0000",
        ),
        (UrlState(0, "running", Place.NOWHERE, NEW, taken_by="77"), "request 77"),
        (UrlState(0, "running", Place.NOWHERE, NEW), ""),
    ],
)
async def test_the_stores_run_is_asked_whether_it_knows_a_page(state: UrlState, says: str) -> None:
    asked: list[Wanted] = []

    async def look(wanted: Wanted) -> UrlState:
        asked.append(wanted)
        return state

    found = (await judged(bench({f"{SITE}/a": links("b")}, look=look)))["/b"]
    assert [each.host for each in asked] == ["site.test"]
    assert found.queued == (not says)
    assert says in found.text


async def test_links_are_followed_so_deep_and_no_further() -> None:
    pages = {
        f"{SITE}/{name}": links(*to)
        for name, to in {"a": "bc", "b": "cd", "c": "", "d": ""}.items()
    }
    stand = bench(pages)
    visits = await stand.crawl(Request(f"{SITE}/a"), None, 2, 9)
    assert [visit.page.request.url.removeprefix(SITE) for visit in visits] == ["/a", "/b", "/c"]
    assert [visit.depth for visit in visits] == [1, 2, 2]
    assert [each.request.url for each in visits[1].verdicts if each.queued] == [f"{SITE}/d"]
    assert len(await bench(pages).crawl(Request(f"{SITE}/a"), None, 9, 2)) == 2


async def test_another_method_can_be_called_and_its_error_is_told() -> None:
    stand = bench({f"{SITE}/a": links()})
    (visit,) = await stand.crawl(Request(f"{SITE}/a"), "parse_odd", 1, 9)
    assert visit.parsed.reason is Reason.CALLBACK_ERROR
    assert visit.parsed.error.startswith("KeyError: 'price' (test_replay_trial.py:")
    assert items_of(visit.parsed.items) == [{"half": True}]
    (visit,) = await stand.crawl(Request(f"{SITE}/a"), "parse_none", 1, 9)
    assert visit.parsed.reason is Reason.UNKNOWN_CALLBACK


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        (None, Reason.VALIDATION),
        (ValidationError("x"), Reason.VALIDATION),
        (NotRetryError("x"), Reason.NOT_RETRY),
    ],
)
async def test_a_page_that_validate_refuses_is_not_parsed(raised: Any, reason: Reason) -> None:
    class Strict(Shop):
        def validate(self, request: Any, response: Any) -> Any:
            if raised is not None:
                raise raised
            return False

    stand = bench({f"{SITE}/a": links("b")}, Strict())
    (visit,) = await stand.crawl(Request(f"{SITE}/a"), None, 1, 9)
    assert (visit.parsed.reason, visit.verdicts, visit.parsed.items) == (reason, (), [])


async def test_a_page_that_cannot_be_had_says_why() -> None:
    (visit,) = await bench({}).crawl(Request(f"{SITE}/a"), None, 3, 9)
    assert (visit.page.ok, visit.parsed.reason) == (False, Reason.STATUS_REJECTED)


async def test_a_redirect_to_another_host_is_followed_where_the_rules_allow_it() -> None:
    def away(request: Request) -> Redirected:
        return Redirected(request, Request("http://other.test/b"))

    pages = {f"{SITE}/a": away, "http://other.test/b": "there"}
    page = await bench(pages).trial.fetch(_named(Request(f"{SITE}/a")))
    assert page.response is not None
    assert (page.response.text, page.request.url) == ("there", "http://other.test/b")
    rules = JobRules(allowed_domains=("site.test",))
    refused = await bench(pages, rules=rules).trial.fetch(_named(Request(f"{SITE}/a")))
    assert (refused.ok, refused.reason) == (False, Reason.OFFSITE)


async def test_the_spiders_own_midware_sees_the_request() -> None:
    class Signing(Shop):
        def download_midware(self, request: Any) -> Any:
            return request.replace(url=f"{SITE}/signed")

    page = await bench({f"{SITE}/signed": "ok"}, Signing()).trial.fetch(
        _named(Request(f"{SITE}/a"))
    )
    assert page.ok


def _named(request: Request) -> Request:
    request.id = "1"
    return request


# -- the prompt


class Answers:
    """What the prompt waits for, awaited at once."""

    def __call__(self, work: Any) -> Any:
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value
        raise AssertionError("it waits for something")


def test_a_refetched_page_is_compared_with_the_stored_one() -> None:
    before = Response(f"{SITE}/a", 403, b"<p>\nblocked\n</p>")
    after = Response(f"{SITE}/a", 200, b"<p>\nprice 1\nprice 2\n</p>")
    summary, lines = diff_lines(before, after)
    assert summary == "status 403 → 200: +2 −1 lines"
    assert [line for line in lines[2:] if line[0] in "+-"] == ["-blocked", "+price 1", "+price 2"]
    same, nothing = diff_lines(after, after)
    assert (same, nothing) == ("status 200 → 200: +0 −0 lines", [])
    binary, nothing = diff_lines(Response(SITE, 200, b"\0\1"), Response(SITE, 200, b"\0\2"))
    assert (binary, nothing) == ("binary, different: 2 and 2 bytes", [])


def test_secrets_in_a_difference_are_masked() -> None:
    before = Response(SITE, 200, b"x")
    after = Response(SITE, 200, b"redis://:hunter2@h/0")
    assert "hunter2" not in "\n".join(diff_lines(before, after)[1])


def test_a_page_is_written_for_a_browser_with_its_base() -> None:
    page = Response(
        f"{SITE}/a/b", 200, b"<html><HEAD><title>x</title>", {"content-type": "text/html"}
    )
    file = written(page)
    text = file.read_text()
    file.unlink()
    assert text == f'<html><HEAD><base href="{SITE}/a/b"><title>x</title>'
    assert file.suffix == ".html"
    data = written(Response(SITE, 200, b"{}", {"content-type": "application/json"}))
    assert (data.suffix, data.read_bytes()) == (".json", b"{}")
    data.unlink()


async def test_the_prompt_says_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    stand = bench({f"{SITE}/a": links("b")})
    prompt = Prompt(stand, await stand.subject(f"{SITE}/a"), Answers(), "")
    assert set(prompt.names) >= {"request", "response", "spider", "fetch", "view", "refetch"}
    assert set(prompt.names) >= {"diff", "run", "requeue"}
    prompt.diff()
    prompt.view()
    assert prompt.requeue() is False
    said = capsys.readouterr().out
    assert "refetch() first" in said
    assert "there is no response" in said
    assert "was not given up" in said
