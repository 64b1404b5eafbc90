"""One exchange with a host: at its turn, and with a word to the gate about what came of it."""

from __future__ import annotations

from orbweb.download.base import Downloader, DownloadError, Gate, Meeting, TurnMissed
from orbweb.download.status import StatusPolicy
from orbweb.errors import ContentTypeRejectedError, ResponseTooLargeError
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import host_of

_HOST_FAILED = frozenset({Reason.TIMEOUT, Reason.CONNECTION, Reason.TLS, Reason.DNS})


class Sender:
    """Sends requests through a gate. The one way to a host, for pages and for robots.txt."""

    def __init__(self, downloader: Downloader, status: StatusPolicy | None = None) -> None:
        """`status` says how long a Retry-After is followed."""
        self._downloader = downloader
        self.status = status or StatusPolicy()
        """May be replaced at any time."""

    async def send(self, request: Request, gate: Gate) -> Response:
        """Fetch when it is the host's turn. Raises as `Downloader.fetch` and as the gate do."""
        host = host_of(request.url)
        while True:
            await gate.ready()
            try:
                response = await self._downloader.fetch(request, gate)
            except TurnMissed:
                continue
            except DownloadError as error:
                if error.reason in _HOST_FAILED:
                    await gate.met(Meeting(host, healthy=False))
                raise
            except (ResponseTooLargeError, ContentTypeRejectedError):
                await gate.met(Meeting(host, healthy=True))
                raise
            await gate.met(self.status.meeting(host, response.status_code, response.headers))
            return response
