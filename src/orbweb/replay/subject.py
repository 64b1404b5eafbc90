"""What a person names at the command line: an address, a curl line, or a request of a run."""

from __future__ import annotations

from dataclasses import dataclass

from orbweb.errors import ConfigError, OrbwebError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import TASKS_HOST, DeadLetter
from orbweb.model.answer import Answer, unpack_answer
from orbweb.model.codec import decode
from orbweb.model.request import Request
from orbweb.model.url import with_scheme
from orbweb.monitor.crawl_line import CrawlLine, LineKind
from orbweb.monitor.log_reader import LogReader
from orbweb.replay.curl import is_curl, request_from_curl

MATCHES = 6
"""Ids with one beginning that are looked for: more than one is an error that names them."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A request to try, and what is known of it."""

    request: Request
    letter: DeadLetter | None = None
    """It was given up."""
    info: RunInfo | None = None
    """The run it belongs to."""
    answer: Answer | None = None
    """What was answered last."""
    notes: tuple[str, ...] = ()
    """What a person should know of it."""


class Finder:
    """Finds what a text names. `job` and `run` say where; None: the latest run of each job."""

    def __init__(
        self,
        admin: Admin | None,
        reader: LogReader | None,
        job: str | None = None,
        run: str | None = None,
    ) -> None:
        self._admin = admin
        self._reader = reader
        self._job = job
        self._run = run

    async def find(self, text: str) -> Subject:
        """Raises `ConfigError` when there is no such request, or the text is none of these."""
        kind, _, name = text.partition(":")
        if kind == "failed" and name:
            return await self._failed(name)
        if kind == "req" and name:
            return await self._any(name)
        return Subject(plain_request(text))

    async def _runs(self) -> list[RunInfo]:
        if self._admin is None:
            raise ConfigError(
                "there is no store here: go to the directory where the spider ran, or name the "
                "store with --store URL"
            )
        if self._job is not None:
            return [await self._admin.find(self._job, self._run)]
        latest: dict[str, RunInfo] = {}
        for info in await self._admin.runs():
            if self._run in (None, info.run):
                latest.setdefault(info.job, info)
        return list(latest.values())

    async def _failed(self, id: str) -> Subject:
        found = []
        for info in await self._runs():
            assert self._admin
            letters = await self._admin.dead_letters_beginning(info, id, MATCHES)
            found += [(info, letter) for letter in letters]
        if not found:
            raise ConfigError(f"no failed request has an id that begins with {id}")
        if len(found) > 1:
            some = ", ".join(sorted(f"{letter.id} of {info.job}" for info, letter in found))
            raise ConfigError(f"several failed requests begin with {id}: {some}")
        return await self._of_letter(*found[0])

    async def _of_letter(self, info: RunInfo, letter: DeadLetter) -> Subject:
        if letter.host == TASKS_HOST:
            raise ConfigError(f"{letter.id} is a task of {info.job}, no page: see orbweb tasks")
        try:
            request = _named(decode(letter.payload), letter.id)
        except OrbwebError as error:
            raise ConfigError(f"failed request {letter.id}: {error}") from None
        assert self._admin
        packed = await self._admin.response(info, letter)
        if packed is None:
            note = "nothing is kept of its response (there was none, or no room for it)"
            return Subject(request, letter, info, notes=(note,))
        try:
            return Subject(request, letter, info, unpack_answer(packed, request))
        except OrbwebError as error:
            return Subject(request, letter, info, notes=(f"its response: {error}",))

    async def _any(self, id: str) -> Subject:
        runs = await self._runs() if self._admin is not None else []
        for info in runs:
            assert self._admin
            letter = await self._admin.dead_letter(info, id)
            if letter is not None:
                return await self._of_letter(info, letter)
            lease = await self._admin.pending(info, id)
            if lease is not None and lease.host != TASKS_HOST:
                note = f"it is pending in {info.job}: the fleet will fetch it too"
                return Subject(_named(decode(lease.payload), id), info=info, notes=(note,))
        line = self._line(id)
        if line is None:
            raise ConfigError(
                f"nobody here knows a request {id}: it is neither pending nor failed, and the "
                "crawl log of this machine has no line of it (`orbweb explain URL` tells ids)"
            )
        request = Request(line.url, line.method, callback=line.callback or None)
        note = f"as the crawl log has it ({line.kind} {line.time}): without its headers and body"
        mine = next((each for each in runs if each.job == line.job), None)
        return Subject(_named(request, id), info=mine, notes=(note,))

    def _line(self, id: str) -> CrawlLine | None:
        lines = self._reader.find(id, self._job) if self._reader is not None else []
        fitting = [line for line in lines if line.id == id and line.kind != LineKind.SKIPPED]
        return fitting[-1] if fitting else None


def plain_request(text: str) -> Request:
    """The request of an address or a curl line. Raises `ConfigError`."""
    request = request_from_curl(text) if is_curl(text) else Request(with_scheme(text, "http"))
    if request.problem is not None:
        raise ConfigError(
            f"{text!r} is no address that can be fetched ({request.problem}); right would be "
            "https://shop.example/p/42, 'curl …', failed:ID or req:ID"
        )
    return request


def _named(request: Request, id: str) -> Request:
    request.id = id
    return request
