"""A redirect to another host becomes a request of its own, which is judged as any link is."""

from __future__ import annotations

from typing import Any

from tests.unit.engine_world import SITE, Crawler, Town, links

from orbweb.download.base import Redirected
from orbweb.download.redirects import Trail
from orbweb.model.codec import decode, encode
from orbweb.model.request import Request
from orbweb.model.response import Response

ELSEWHERE = "http://other.test"


def to(target: str, *, taken: bool = False) -> Any:
    """A page that redirects, as the chain tells it."""

    def answer(request: Request) -> Redirected:
        response = Response(request.url, 302, headers={"location": target})
        trail = Trail(request, 10)
        hop = trail.next_hop(request, response)
        return Redirected(request, trail.carried(hop, taken=taken))

    return answer


class Wire:
    """Requests travel as bytes, as in a store."""

    encode = staticmethod(encode)
    decode = staticmethod(decode)


def test_the_target_enters_with_what_the_request_had() -> None:
    seen: list[Request] = []

    class Seeing(Crawler):
        def start_requests(self) -> Any:
            yield Request(
                f"{SITE}/a", callback="parse_b", priority=5, meta={"m": 1}, cb_kwargs={"k": 2}
            )

        def parse_b(self, request: Request, response: Response, k: int) -> Any:
            seen.append(request)
            yield {"url": request.url, "k": k}

    pages = {f"{SITE}/a": to(f"{ELSEWHERE}/b"), f"{ELSEWHERE}/b": links()}
    town = Town(pages, codec=Wire())
    (report,) = town.run(town.node(Seeing()))
    assert report.run is not None
    assert report.run.reasons == {"redirected": 1, "done": 1}
    assert report.counts["dropped"] == 0
    assert [row["url"] for row in town.rows] == [f"{ELSEWHERE}/b"]
    (request,) = seen
    assert (request.priority, request.meta, request.depth) == (5, {"m": 1}, 0)
    assert request.way.history == (f"{SITE}/a",)


def test_two_redirects_to_one_page_of_another_host_give_it_once() -> None:
    pages = {
        f"{SITE}/a": to(f"{ELSEWHERE}/x"),
        f"{SITE}/b": to(f"{ELSEWHERE}/x"),
        f"{ELSEWHERE}/x": links(),
    }
    town = Town(pages)
    (report,) = town.run(town.node(Crawler("a", "b")))
    assert report.run is not None
    assert report.run.reasons == {"redirected": 2, "done": 1, "duplicate_request": 1}


def test_requests_that_are_not_deduplicated_follow_each_redirect() -> None:
    class Twice(Crawler):
        def start_requests(self) -> Any:
            yield Request(f"{SITE}/a", dont_filter=True)
            yield Request(f"{SITE}/a", dont_filter=True)

    pages = {f"{SITE}/a": to(f"{ELSEWHERE}/x"), f"{ELSEWHERE}/x": links()}
    town = Town(pages)
    (report,) = town.run(town.node(Twice()))
    assert report.run is not None
    assert report.run.reasons == {"redirected": 2, "done": 2}


def test_a_target_that_is_not_wanted_is_counted_as_a_link_is() -> None:
    pages = {f"{SITE}/a": to(f"{ELSEWHERE}/x")}
    town = Town(pages)
    (report,) = town.run(town.node(Crawler("a"), allowed_domains=frozenset({"site.test"})))
    assert report.run is not None
    assert report.run.reasons == {"redirected": 1, "offsite": 1}
    assert report.counts["dropped"] == 1
    assert town.chain.asked == [f"{SITE}/a"]


def test_a_page_that_this_request_has_taken_already_is_no_duplicate() -> None:
    pages = {f"{SITE}/a": to(f"{SITE}/b", taken=True), f"{SITE}/b": links()}
    town = Town(pages)
    (report,) = town.run(town.node(Crawler("b", "a")))
    assert report.run is not None
    assert report.run.reasons == {"redirected": 1, "done": 2}


def test_a_link_of_a_redirected_page_has_no_way() -> None:
    ways: list[tuple[str, ...]] = []

    class Following(Crawler):
        def parse(self, request: Request, response: Response) -> Any:
            ways.append(request.way.history)
            if request.url.endswith("/x"):
                yield request.replace(url=f"{ELSEWHERE}/y")

    pages = {
        f"{SITE}/a": to(f"{ELSEWHERE}/x"),
        f"{ELSEWHERE}/x": links(),
        f"{ELSEWHERE}/y": links(),
    }
    town = Town(pages)
    town.run(town.node(Following("a")))
    assert ways == [(f"{SITE}/a",), ()]


def test_a_way_cannot_be_given_to_a_seed() -> None:
    class Odd(Crawler):
        def start_requests(self) -> Any:
            request = Request(f"{SITE}/a")
            request.way = request.way._replace(taken=True)
            yield request
            yield Request(f"{SITE}/a")

    town = Town({f"{SITE}/a": links()})
    (report,) = town.run(town.node(Odd()))
    assert report.run is not None
    assert report.run.reasons == {"done": 1, "duplicate_request": 1}
