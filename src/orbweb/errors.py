"""The errors of Orbweb: one class for each decision that a caller can take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class OrbwebError(Exception):
    """Root of all errors that Orbweb raises on purpose."""


class ConfigError(OrbwebError):
    """A setting, an argument or the environment is wrong: correct it and start again (exit 2)."""


class StoreUnavailable(OrbwebError):
    """The store did not answer, so the call may or may not have happened.

    Repeat the call with the same arguments: every frontier operation is safe to repeat.
    """


class SourceUnavailable(OrbwebError):
    """A source of live values did not answer: go on with those it gave last, and ask again."""


class StoreUnsafe(OrbwebError):
    """The store is configured in a way that would lose data: change it and start again (exit 2)."""


class RunLost(OrbwebError):
    """The run is not in the store any more (flushed, reset, another database): stop, no end."""


class LeaseLost(OrbwebError):
    """Another node may hold this request now. Drop the work, write nothing more."""


class HostBusy(OrbwebError):
    """The host's turn is not soon. Give the request back, nothing of it counts as an attempt."""


class NoProxyFree(OrbwebError):
    """No proxy of the pool is free for the host. Give the request back, it is no attempt."""


class SpiderError(OrbwebError):
    """The spider's own code breaks a rule of the framework, as an unknown callback name does."""


class RequestError(OrbwebError):
    """A request could not be made or its answer cannot be used: retry it with backoff."""


class ResponseError(OrbwebError):
    """The content of a response cannot be read as asked (wrong JSON, unknown charset)."""


class ValidationError(OrbwebError):
    """Raised by `validate()` when the page is not the one wanted: retry the request."""


class NotRetryError(OrbwebError):
    """Raised by user code when a retry would not help: give the request up at once."""


class ItemError(OrbwebError):
    """One item cannot be stored as it is; the items beside it can."""


class PipelineError(OrbwebError):
    """A pipeline could not store a batch: keep the batch and try again."""


class DedupError(OrbwebError):
    """The duplicate filter cannot answer."""


class UnserialisableError(OrbwebError):
    """A request carries a value that cannot travel through the store; the text names the field."""


class HttpStatusError(RequestError):
    """The site answered with a status that the policy does not accept."""

    def __init__(self, status_code: int, url: str) -> None:
        super().__init__(f"HTTP status {status_code} for {url}")
        self.status_code = status_code
        self.url = url


class ResponseTooLargeError(RequestError):
    """The body passed `MAX_RESPONSE_SIZE`, counted after decompression."""


class AntiBotError(RequestError):
    """The site answered with a challenge page instead of content."""


class ProxyUnavailableError(RequestError):
    """No proxy can be had now."""


class UserUnavailableError(RequestError):
    """No account can be had now."""


class ContentTypeRejectedError(OrbwebError):
    """The content type is not among `ALLOWED_CONTENT_TYPES`."""


def as_error(caught: BaseException) -> Exception:
    """What code that is not ours raised, as an error of its own work.

    `sys.exit()`, a cancellation or a StopIteration in a callback must end neither the node nor,
    unheard, the task that called it.
    """
    if isinstance(caught, Exception) and not isinstance(caught, StopIteration):
        return caught
    text = str(caught)
    error = RuntimeError(f"it raised {type(caught).__name__}{f' ({text})' if text else ''}")
    error.__cause__ = caught
    return error


@contextmanager
def contained() -> Iterator[None]:
    """Around awaited code that is not ours. See `as_error`; our own cancellation passes through."""
    import asyncio  # a fifth of what a command needs to show its help

    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise as_error(error) from error
    except (SystemExit, KeyboardInterrupt) as error:
        raise as_error(error) from error
