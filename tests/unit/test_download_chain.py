"""The order of one download, and what each kind of error becomes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.gates import OpenGate

from orbweb.download.base import (
    Again,
    DownloadError,
    Dropped,
    Failed,
    Fetched,
    Meeting,
    Redirected,
    TurnMissed,
)
from orbweb.download.chain import Chain
from orbweb.download.redirects import RedirectRules
from orbweb.download.robots import MemoryRobotsStore, Robots, RobotsOptions
from orbweb.download.send import Sender
from orbweb.download.status import StatusPolicy
from orbweb.errors import (
    AntiBotError,
    ContentTypeRejectedError,
    HostBusy,
    LeaseLost,
    NotRetryError,
    ProxyUnavailableError,
    ResponseTooLargeError,
    ValidationError,
)
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response

URL = "http://shop.example/a"
Answer = Response | Exception | Callable[[Request], Response]


def page(url: str = URL, status: int = 200, body: bytes = b"body", **headers: str) -> Response:
    return Response(url=url, status_code=status, content=body, headers=headers)


class Client:
    """A downloader that writes what it is asked for into the test's log."""

    def __init__(self, log: list[str], answers: dict[str, Answer] | None = None) -> None:
        self.log = log
        self.answers = answers or {}
        self.requests: list[Request] = []
        self.closed = 0

    async def fetch(self, request: Request, gate: Any = None) -> Response:
        if gate is not None:
            await gate.enter()
        self.log.append(f"fetch {request.url}")
        self.requests.append(request)
        answer = self.answers.get(request.url) or page(request.url)
        if isinstance(answer, Exception):
            raise answer
        return answer(request) if not isinstance(answer, Response) else answer

    async def close(self) -> None:
        self.closed += 1


class Named:
    def __init__(self, name: str, log: list[str], **results: Any) -> None:
        self.name, self.log, self.results = name, log, results

    def process_request(self, request: Request) -> Any:
        self.log.append(f"{self.name} request")
        return self._result("request", request)

    async def process_response(self, request: Request, response: Response) -> Any:
        self.log.append(f"{self.name} response")
        return self._result("response", response)

    def _result(self, kind: str, given: Any) -> Any:
        result = self.results.get(kind)
        if isinstance(result, Exception):
            raise result
        return result(given) if callable(result) else result


class LoggingGate(OpenGate):
    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def enter(self) -> None:
        await super().enter()
        self.log.append("enter")


class Bench:
    """A chain and the log of what it did."""

    def __init__(self, answers: dict[str, Answer] | None = None, **options: Any) -> None:
        self.log: list[str] = []
        self.client = Client(self.log, answers)
        self.options = options
        self.gate = LoggingGate(self.log)

    @property
    def sends(self) -> int:
        return self.gate.entered

    def chain(self, *middlewares: Any, robots_txt: bytes | None = None) -> Chain:
        robots = None
        if robots_txt is not None:
            self.client.answers[URL.replace("/a", "/robots.txt")] = page(body=robots_txt)
            robots = Robots(
                Sender(self.client),
                MemoryRobotsStore(lambda: 0.0),
                RobotsOptions("orbweb"),
                holder="n",
                rng=random.Random(1),
            )
        return Chain(self.client, middlewares=middlewares, robots=robots, **self.options)

    async def run(self, *middlewares: Any, **options: Any) -> Any:
        request = options.pop("request", None) or Request(URL)
        midware, admit = options.pop("download_midware", None), options.pop("admit", None)
        chain = self.chain(*middlewares, **options)
        return await chain.download(request, download_midware=midware, gate=self.gate, admit=admit)


async def test_the_order_of_one_request() -> None:
    bench = Bench()
    first, second = Named("first", bench.log), Named("second", bench.log)

    def midware(request: Request) -> None:
        bench.log.append("download_midware")

    outcome = await bench.run(first, second, download_midware=midware, robots_txt=b"User-agent: x")
    assert isinstance(outcome, Fetched)
    assert bench.log == [
        "first request",
        "second request",
        "download_midware",
        "enter",
        "fetch http://shop.example/robots.txt",
        "enter",
        f"fetch {URL}",
        "second response",
        "first response",
    ]


async def test_a_page_comes_with_its_request() -> None:
    request = Request(URL)
    outcome = await Bench().run(request=request)
    assert isinstance(outcome, Fetched)
    assert outcome.request is request
    assert outcome.response is not None
    assert outcome.response.content == b"body"


async def test_a_request_without_download_has_no_response() -> None:
    bench = Bench()
    outcome = await bench.run(request=Request(URL, auto_request=False))
    assert isinstance(outcome, Fetched)
    assert outcome.response is None
    assert bench.log == []


def queued(url: str = URL) -> Request:
    request = Request(url)
    request.id, request.parent_id, request.lease_token = "id-1", "id-0", "node:7"
    request.depth, request.retry_times = 3, 2
    return request


def identity(request: Request) -> tuple[Any, ...]:
    return (
        request.id,
        request.parent_id,
        request.lease_token,
        request.depth,
        request.retry_times,
    )


@pytest.mark.parametrize("where", ["middleware", "download_midware"])
async def test_a_replacing_request_is_sent_and_keeps_the_identity(where: str) -> None:
    bench = Bench()
    other = Request("http://shop.example/other")
    if where == "middleware":
        outcome = await bench.run(Named("m", bench.log, request=other), request=queued())
    else:
        outcome = await bench.run(download_midware=lambda request: other, request=queued())
    assert isinstance(outcome, Fetched)
    assert outcome.request is other
    assert identity(other) == identity(queued())
    assert f"fetch {other.url}" in bench.log


async def test_a_change_of_the_request_itself_takes_effect() -> None:
    bench = Bench()

    async def midware(request: Request) -> None:
        request.headers = {"X-A": "1"}

    await bench.run(download_midware=midware)
    assert bench.client.requests[0].headers == {"X-A": "1"}


async def test_a_response_from_a_middleware_replaces_the_fetch() -> None:
    bench = Bench()
    cached = page(body=b"cached")
    first = Named("first", bench.log, request=cached)
    outcome = await bench.run(
        first, Named("second", bench.log), robots_txt=b"User-agent: *\nDisallow: /"
    )
    assert isinstance(outcome, Fetched)
    assert outcome.response is cached
    assert cached.request is outcome.request
    assert bench.log == ["first request", "second response", "first response"]


async def test_a_request_from_process_response_asks_for_another_try() -> None:
    bench = Bench()
    other = Request(URL, priority=1)
    outcome = await bench.run(
        Named("first", bench.log), Named("second", bench.log, response=other), request=queued()
    )
    assert isinstance(outcome, Again)
    assert outcome.request is other
    assert identity(other) == identity(queued())
    assert "first response" not in bench.log


async def test_a_replaced_response_goes_on_to_the_status_policy() -> None:
    bench = Bench()
    outcome = await bench.run(Named("m", bench.log, response=lambda given: page(status=404)))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.STATUS_REJECTED, False)


@pytest.mark.parametrize("hook", ["request", "response"])
async def test_an_exception_in_a_middleware_is_a_failure_that_names_it(hook: str) -> None:
    bench = Bench()
    cause = KeyError("token")
    outcome = await bench.run(Named("m", bench.log, **{hook: cause}))
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.MIDDLEWARE_ERROR, True)
    assert f"Named.process_{hook}: KeyError: 'token'" in str(outcome.error)
    assert outcome.error.__cause__ is cause


@pytest.mark.parametrize("hook", ["request", "response"])
async def test_a_middleware_that_returns_nonsense_is_a_failure_that_names_it(hook: str) -> None:
    bench = Bench()
    outcome = await bench.run(Named("m", bench.log, **{hook: "yes"}))
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.MIDDLEWARE_ERROR
    assert f"Named.process_{hook} returned str" in str(outcome.error)


async def test_an_exception_in_download_midware_is_a_failure() -> None:
    def midware(request: Request) -> None:
        raise ValueError("odd")

    outcome = await Bench().run(download_midware=midware)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.MIDDLEWARE_ERROR, True)
    assert "download_midware: ValueError: odd" in str(outcome.error)


@pytest.mark.parametrize(
    ("error", "reason", "retry"),
    [
        (NotRetryError("gone"), Reason.NOT_RETRY, False),
        (ValidationError("half a page"), Reason.VALIDATION, True),
        (ProxyUnavailableError("none"), Reason.PROXY, True),
        (AntiBotError("challenge"), Reason.ANTIBOT, True),
    ],
)
async def test_errors_that_say_what_they_mean_keep_their_meaning(
    error: Exception, reason: Reason, retry: bool
) -> None:
    bench = Bench()
    for outcome in (
        await bench.run(Named("m", bench.log, request=error)),
        await bench.run(Named("m", bench.log, response=error)),
    ):
        assert isinstance(outcome, Failed)
        assert (outcome.reason, outcome.retry) == (reason, retry)
        assert outcome.error is error


@pytest.mark.parametrize(
    ("error", "reason", "retry"),
    [
        (DownloadError(Reason.DNS, "x"), Reason.DNS, Reason.DNS.retryable),
        (DownloadError(Reason.PROXY, "x", retry=False), Reason.PROXY, False),
        (ResponseTooLargeError("x"), Reason.TOO_LARGE, False),
        (RuntimeError("a fault of the client"), Reason.HTTP_ERROR, True),
    ],
)
async def test_errors_of_the_fetch(error: Exception, reason: Reason, retry: bool) -> None:
    outcome = await Bench({URL: error}).run()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry, outcome.error) == (reason, retry, error)


async def test_an_unwanted_content_type_is_a_drop() -> None:
    outcome = await Bench({URL: ContentTypeRejectedError("image/png")}).run()
    assert isinstance(outcome, Dropped)
    assert outcome.reason is Reason.CONTENT_TYPE


async def test_params_that_cannot_be_sent_fail_without_a_send() -> None:
    bench = Bench()
    outcome = await bench.run(
        request=Request(URL, params={"x": object()}), robots_txt=b"User-agent: x"
    )
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.NOT_SERIALIZABLE, False)
    assert bench.log == []


async def test_a_disallowed_page_is_dropped_and_never_sent() -> None:
    bench = Bench()
    outcome = await bench.run(robots_txt=b"User-agent: *\nDisallow: /a")
    assert isinstance(outcome, Dropped)
    assert outcome.reason is Reason.ROBOTS_DISALLOWED
    assert bench.sends == 1, "robots.txt"


async def test_robots_see_the_params() -> None:
    request = Request(URL, params={"sort": "price"})
    outcome = await Bench().run(request=request, robots_txt=b"User-agent: *\nDisallow: /*?sort=")
    assert isinstance(outcome, Dropped)


async def test_an_unreachable_robots_txt_is_a_failure_that_is_tried_again() -> None:
    bench = Bench()
    chain = bench.chain(robots_txt=b"")
    bench.client.answers["http://shop.example/robots.txt"] = page(status=503)
    outcome = await chain.download(Request(URL), gate=bench.gate)
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.ROBOTS_UNREACHABLE, True)
    assert outcome.retry_after is not None
    assert bench.sends == 1, "robots.txt"


async def test_a_429_is_tried_again_when_the_site_says() -> None:
    bench = Bench({URL: page(status=429, **{"retry-after": "7"})})
    outcome = await bench.run()
    assert isinstance(outcome, Failed)
    assert (outcome.retry, outcome.retry_after) == (True, 7.0)
    assert outcome.response is not None


async def test_every_hop_passes_the_gate_and_is_recorded() -> None:
    bench = Bench(
        {
            URL: page(URL, 301, location="/b"),
            "http://shop.example/b": page("http://shop.example/b", 302, location="/c"),
        }
    )
    request = Request(URL)
    outcome = await bench.run(request=request)
    assert isinstance(outcome, Fetched)
    assert outcome.response is not None
    assert outcome.response.url == "http://shop.example/c"
    assert outcome.response.history == [URL, "http://shop.example/b"]
    assert outcome.response.request is request
    assert bench.log == ["enter", f"fetch {URL}", "enter",
        "fetch http://shop.example/b", "enter", "fetch http://shop.example/c"]  # fmt: skip


async def test_a_redirect_to_a_disallowed_page_is_dropped() -> None:
    bench = Bench({URL: page(URL, 302, location="/secret")})
    outcome = await bench.run(robots_txt=b"User-agent: *\nDisallow: /secret")
    assert isinstance(outcome, Dropped)
    assert outcome.reason is Reason.ROBOTS_DISALLOWED
    assert "/secret" in str(outcome.error)
    assert bench.sends == 2, "robots.txt and the page"


async def test_a_redirect_out_of_the_crawl_is_dropped() -> None:
    bench = Bench({URL: page(URL, 302, location="/ads")})

    async def admit(hop: Request) -> Reason | None:
        return Reason.URL_LENGTH if "ads" in hop.url else None

    outcome = await bench.run(admit=admit)
    assert isinstance(outcome, Dropped)
    assert outcome.reason is Reason.URL_LENGTH
    assert "http://shop.example/ads" in str(outcome.error)
    assert bench.sends == 1


async def test_a_redirect_to_another_host_is_a_request_of_its_own() -> None:
    bench = Bench(
        {
            URL: page(URL, 302, location="/b"),
            "http://shop.example/b": page(
                "http://shop.example/b", 302, location="http://other.example/c"
            ),
        }
    )
    request = Request(URL, callback="parse_c", meta={"m": 1}, auth=("u", "p"), priority=7)
    outcome = await bench.run(request=request)
    assert isinstance(outcome, Redirected)
    assert outcome.request is request
    target = outcome.target
    assert (target.url, target.callback, target.meta, target.priority) == (
        "http://other.example/c",
        "parse_c",
        {"m": 1},
        7,
    )
    assert target.auth is None
    assert target.way.history == (URL, "http://shop.example/b")
    assert bench.sends == 2
    there = Bench()
    arrived = await there.run(request=target)
    assert arrived.response.history == [URL, "http://shop.example/b"]


async def test_redirects_between_hosts_count_together_and_loops_end() -> None:
    here, there = "http://a.example/", "http://b.example/"
    answers = {here: page(here, 302, location=there), there: page(there, 302, location=here)}
    first = await Bench(answers).run(request=Request(here))
    assert isinstance(first, Redirected)
    second = await Bench(answers).run(request=first.target)
    assert isinstance(second, Failed)
    assert (second.reason, second.retry) == (Reason.REDIRECT_LOOP, False)
    rules = RedirectRules(most=1)
    answers[there] = page(there, 302, location="/further")
    second = await Bench(answers, redirects=rules).run(request=first.target)
    assert isinstance(second, Failed)
    assert "MAX_REDIRECTS" in str(second.error)


async def test_a_page_that_another_host_sends_back_with_a_cookie_is_asked_again() -> None:
    here, login = "http://a.example/", "http://login.example/"

    def front(request: Request) -> Response:
        if request.cookies:
            return page(here)
        response = page(here, 302, location=login)
        response.cookies = {"seen": "1"}
        return response

    answers: dict[str, Answer] = {here: front, login: page(login, 302, location=here)}
    first = await Bench(answers).run(request=Request(here))
    assert isinstance(first, Redirected)
    assert not first.target.way.taken
    second = await Bench(answers).run(request=first.target)
    assert isinstance(second, Redirected)
    assert second.target.cookies == {"seen": "1"}
    assert second.target.way.taken, "it is no duplicate of the page that was redirected"
    third = await Bench(answers).run(request=second.target)
    assert isinstance(third, Fetched)
    assert third.response is not None
    assert third.response.history == [here, login]


async def test_a_redirect_at_a_host_whose_turn_is_not_soon_is_a_request_of_its_own() -> None:
    bench = Bench({URL: page(URL, 302, location="/b")})

    async def enter() -> None:
        if bench.sends:
            raise HostBusy("slow")
        bench.gate.entered += 1

    bench.gate.enter = enter  # type: ignore[method-assign]
    outcome = await bench.run()
    assert isinstance(outcome, Redirected)
    assert outcome.target.url == "http://shop.example/b"
    assert outcome.target.way.taken


async def test_a_turn_that_was_missed_is_waited_for_and_the_fetch_begins_anew() -> None:
    bench = Bench()
    order: list[str] = []

    async def ready() -> None:
        order.append("ready")

    async def enter() -> None:
        order.append("enter")
        if order.count("enter") == 1:
            raise TurnMissed

    bench.gate.ready, bench.gate.enter = ready, enter  # type: ignore[method-assign]
    assert isinstance(await bench.run(), Fetched)
    assert order == ["ready", "enter", "ready", "enter"]


async def test_a_turn_that_was_missed_leaves_redirects_their_time_limit() -> None:
    class Stuck(Client):
        async def fetch(self, request: Request, gate: Any = None) -> Response:
            await gate.enter()
            if request.url != URL:
                await asyncio.Event().wait()
            return page(URL, 302, location="/slow")

    class Missing(OpenGate):
        async def enter(self) -> None:
            await super().enter()
            if self.entered == 2:
                raise TurnMissed

    chain = Chain(Stuck([]), redirects=RedirectRules(total_seconds=0.05))
    outcome = await chain.download(Request(URL), gate=Missing())
    assert isinstance(outcome, Failed)
    assert outcome.reason is Reason.TIMEOUT


@pytest.mark.parametrize(
    ("answer", "meeting"),
    [
        (page(status=404), Meeting("shop.example", True)),
        (page(status=500), Meeting("shop.example", False)),
        (page(status=429), Meeting("shop.example", False, refused=True)),
        (page(status=503, **{"retry-after": "7"}), Meeting("shop.example", False, False, 7.0)),
        (page(status=404, **{"retry-after": "7"}), Meeting("shop.example", True)),
        (page(status=429, **{"retry-after": "9999"}), Meeting("shop.example", False, False, 3600)),
        (DownloadError(Reason.TIMEOUT, "late"), Meeting("shop.example", False)),
        (DownloadError(Reason.DNS, "unknown"), Meeting("shop.example", False)),
        (ResponseTooLargeError("big"), Meeting("shop.example", True)),
        (DownloadError(Reason.HTTP_ERROR, "no such option"), None),
        (DownloadError(Reason.PROXY, "no proxy"), None),
    ],
)
async def test_the_gate_is_told_what_came_of_a_send(answer: Answer, meeting: Any) -> None:
    bench = Bench({URL: answer}, status=StatusPolicy(check=False))
    await bench.run()
    assert bench.gate.meetings == ([] if meeting is None else [meeting])


async def test_an_answer_of_a_middleware_passes_no_gate() -> None:
    bench = Bench()
    await bench.run(Named("cache", bench.log, request=page(body=b"cached")))
    assert (bench.sends, bench.gate.meetings) == (0, [])


async def test_a_redirect_loop_ends() -> None:
    bench = Bench({URL: page(URL, 302, location="/b"),
        "http://shop.example/b": page("http://shop.example/b", 302, location=URL)})  # fmt: skip
    outcome = await bench.run()
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.REDIRECT_LOOP, False)
    assert bench.sends == 2


async def test_a_redirect_that_is_not_to_be_followed_is_the_page() -> None:
    bench = Bench({URL: page(URL, 302, location="/b")})
    outcome = await bench.run(request=Request(URL, follow_redirects=False))
    assert isinstance(outcome, Fetched)
    assert outcome.response is not None
    assert outcome.response.status_code == 302


async def test_all_hops_together_have_one_time_limit() -> None:
    class Stuck(Client):
        async def fetch(self, request: Request, gate: Any = None) -> Response:
            if request.url != URL:
                await asyncio.Event().wait()
            return page(URL, 302, location="/slow")

    chain = Chain(Stuck([]), redirects=RedirectRules(total_seconds=0.01))
    outcome = await chain.download(Request(URL), gate=OpenGate())
    assert isinstance(outcome, Failed)
    assert (outcome.reason, outcome.retry) == (Reason.TIMEOUT, True)


@pytest.mark.parametrize("at", [1, 2])
async def test_a_lost_lease_passes_through_before_anything_is_sent(at: int) -> None:
    bench = Bench({URL: page(URL, 302, location="/b")})

    async def enter() -> None:
        bench.gate.entered += 1
        if bench.sends == at:
            raise LeaseLost("stolen")

    bench.gate.enter = enter  # type: ignore[method-assign]
    with pytest.raises(LeaseLost):
        await bench.run()
    assert len(bench.client.requests) == at - 1


async def test_cancellation_passes_through() -> None:
    class Waiting(Client):
        async def fetch(self, request: Request, gate: Any = None) -> Response:
            await asyncio.Event().wait()
            raise AssertionError

    chain = Chain(Waiting([]))
    task = asyncio.create_task(chain.download(Request(URL), gate=OpenGate()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_status_policy_can_be_switched_off() -> None:
    bench = Bench({URL: page(status=500)}, status=StatusPolicy(check=False))
    outcome = await bench.run()
    assert isinstance(outcome, Fetched)


async def test_closing_closes_middlewares_and_client() -> None:
    bench = Bench()
    closed: list[str] = []

    class Closing:
        def process_request(self, request: Request) -> None: ...

        def close(self) -> None:
            closed.append("middleware")

    await bench.chain(Closing()).close()
    assert closed == ["middleware"]
    assert bench.client.closed == 1
