"""What the engine keeps of the response of a request that it gives up."""

from __future__ import annotations

from typing import Any

from tests.unit.engine_world import SITE, Crawler, Town

from orbweb.download.base import DownloadError, Failed
from orbweb.errors import NotRetryError
from orbweb.frontier.base import RunConfig
from orbweb.model.answer import unpack_answer
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response


def blocked(request: Request) -> Failed:
    response = Response(request.url, 403, b"<p>blocked</p>", {"server": "wall"}, request=request)
    error = DownloadError(Reason.STATUS_REJECTED, "403")
    return Failed(request, Reason.STATUS_REJECTED, error, retry=False, response=response)


def kept(town: Town) -> dict[str, bytes]:
    (run,) = town.shard.runs.values()
    return {run.dead[id].task.payload.url: packed for id, packed in run.responses.items()}


def crawl(pages: dict[str, Any], spider: Crawler, **options: Any) -> Town:
    town = Town(pages, config=RunConfig(max_retries=1, kept_responses=options.pop("kept", 9)))
    town.run(town.node(spider, **options))
    return town


def test_a_refused_answer_is_kept_with_its_dead_letter() -> None:
    town = crawl({f"{SITE}/a": blocked}, Crawler(), failed_response_bytes=1000)
    answer = unpack_answer(kept(town)[f"{SITE}/a"])
    assert answer.response.status_code == 403
    assert (answer.response.content, answer.response.headers["Server"]) == (
        b"<p>blocked</p>",
        "wall",
    )


def test_the_page_of_a_callback_that_failed_is_kept_and_the_line_is_named() -> None:
    class Odd(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            raise KeyError("price")

    town = crawl({f"{SITE}/a": "x" * 5000}, Odd(), failed_response_bytes=100)
    answer = unpack_answer(kept(town)[f"{SITE}/a"])
    assert (len(answer.response.content), answer.whole_bytes) == (100, 5000)
    (run,) = town.shard.runs.values()
    (letter,) = run.dead.values()
    assert letter.error.startswith("KeyError: 'price' (test_engine_answers.py:")
    assert letter.error.endswith(" in parse)")
    assert letter.node == "node1"


def test_nothing_is_kept_where_nothing_is_wanted_or_nothing_came() -> None:
    class Unwanted(Crawler):
        def parse(self, request: Any, response: Any) -> Any:
            raise NotRetryError("not this one")

    pages = {f"{SITE}/a": "page"}
    assert kept(crawl(pages, Unwanted())) == {}
    assert kept(crawl(pages, Unwanted(), failed_response_bytes=100, kept=0)) == {}
    assert kept(crawl({}, Crawler(), failed_response_bytes=100)) == {}, "a 404 without its answer"
    assert kept(crawl(pages, Crawler(), failed_response_bytes=100)) == {}, "a good page"
