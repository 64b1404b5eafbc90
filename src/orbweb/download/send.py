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
_TOO_MANY = 429
_UNAVAILABLE = 503


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
            await gate.met(self._meeting(host, response))
            return response

    def _meeting(self, host: str, response: Response) -> Meeting:
        status = response.status_code
        if status < 500 and status != _TOO_MANY:
            return Meeting(host, healthy=True)
        retry_after = self.status.pause(response)
        refused = status in (_TOO_MANY, _UNAVAILABLE) and retry_after is None
        return Meeting(host, healthy=False, refused=refused, retry_after=retry_after)
