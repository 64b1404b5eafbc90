"""The request: what to fetch, how, and which method of the spider gets the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

from orbweb.errors import RequestError
from orbweb.model.fingerprint import fingerprint, full_url, request_id
from orbweb.model.url import BadUrlError, clean_url
from orbweb.model.way import NO_WAY, Way

if TYPE_CHECKING:
    from orbweb.model.reasons import Reason

HTTP_OPTIONS = frozenset(
    {
        "params",
        "headers",
        "cookies",
        "data",
        "json",
        "content",
        "files",
        "auth",
        "timeout",
        "follow_redirects",
        "allow_redirects",
        "verify",
        "proxy",
        "proxies",
        "cert",
    }
)
"""Arguments of the HTTP client that a request may carry; kept in `Request.requests_kwargs`."""

DEFAULT_PRIORITY = 300

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+").fullmatch

Callback = Callable[..., Any] | str


class _HttpOption:
    """An attribute of a request that lives in its `requests_kwargs`; None when unset."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, request: Request | None, owner: type[Request]) -> Any:
        return self if request is None else request.requests_kwargs.get(self._name)

    def __set__(self, request: Request, value: Any) -> None:
        if value is None:
            request.requests_kwargs.pop(self._name, None)
        else:
            request.requests_kwargs[self._name] = value


class _Headers(_HttpOption):
    """Like the others, but an unset one is a dict that takes effect when it is filled."""

    __slots__ = ()

    def __get__(self, request: Request | None, owner: type[Request]) -> Any:
        return self if request is None else request.requests_kwargs.setdefault(self._name, {})


class Request:
    """One page to fetch. Requests with a smaller `priority` (within ±524288) go first.

    The arguments of the HTTP client (`HTTP_OPTIONS`) can be given here or set later as attributes.
    Any further argument or attribute is the spider's own: it is kept in `custom` and travels along.
    `meta` and `cb_kwargs` travel along too; `cb_kwargs` become arguments of the callback.

    `filter_repeat=False` (`dont_filter=True`) lets a request pass that was taken before.
    `dedup="exact"` looks it up in an exact set, beside a filter that may err (`DEDUP_FILTER`): no
    error can drop it.
    `auto_request=False` calls the callback without a download, with None as response.
    A URL that cannot be fetched raises nothing, so that it cannot end the generator which yields
    it: the request has the reason as `problem`, and is counted and logged instead of queued.
    Raises `TypeError` for arguments of a wrong type, `RequestError` for a wrong method or `dedup`.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "auto_request",
        "callback",
        "cb_kwargs",
        "dedup",
        "depth",
        "download_midware",
        "filter_repeat",
        "id",
        "impersonate",
        "lease_token",
        "meta",
        "method",
        "parent_id",
        "parser_name",
        "priority",
        "problem",
        "random_user_agent",
        "render",
        "render_script",
        "render_time",
        "requests_kwargs",
        "retry_times",
        "url",
        "use_session",
        "wait_for",
        "way",
    )

    params = _HttpOption("params")
    headers = _Headers("headers")
    cookies = _HttpOption("cookies")
    data = _HttpOption("data")
    json = _HttpOption("json")
    content = _HttpOption("content")
    files = _HttpOption("files")
    auth = _HttpOption("auth")
    timeout = _HttpOption("timeout")
    follow_redirects = _HttpOption("follow_redirects")
    allow_redirects = _HttpOption("allow_redirects")
    verify = _HttpOption("verify")
    proxy = _HttpOption("proxy")
    proxies = _HttpOption("proxies")
    cert = _HttpOption("cert")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(
        self,
        url: str,
        method: str = "GET",
        *,
        callback: Callback | None = None,
        priority: int = DEFAULT_PRIORITY,
        retry_times: int = 0,
        filter_repeat: bool = True,
        dedup: str | None = None,
        auto_request: bool = True,
        use_session: bool | None = None,
        random_user_agent: bool | None = None,
        impersonate: str | None = None,
        render: bool = False,
        render_time: float | None = None,
        wait_for: str | None = None,
        render_script: str | None = None,
        download_midware: Callback | None = None,
        parser_name: str | None = None,
        cb_kwargs: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        dont_filter: bool | None = None,
        **kwargs: Any,
    ) -> None:
        self.problem: Reason | None = None
        try:
            self.url = clean_url(url)
        except BadUrlError as error:
            self.url, self.problem = error.url, error.reason
        self.method = method if method == "GET" else _checked_method(method)
        if callback is not None and not isinstance(callback, str) and not callable(callback):
            raise TypeError(f"callback must be a method or its name, not {callback!r} ({url})")
        self.callback = callback
        if type(priority) is not int:
            raise TypeError(f"priority must be an int, not {priority!r} ({url})")
        self.priority = priority
        self.retry_times = retry_times
        self.filter_repeat = filter_repeat if dont_filter is None else not dont_filter
        if dedup not in (None, "exact"):
            raise RequestError(f"dedup is None or 'exact', not {dedup!r} ({url})")
        self.dedup = dedup
        self.auto_request = auto_request
        self.use_session = use_session
        self.random_user_agent = random_user_agent
        self.impersonate = impersonate
        self.render = render
        self.render_time = render_time
        self.wait_for = wait_for
        self.render_script = render_script
        self.download_midware = download_midware
        self.parser_name = parser_name
        self.cb_kwargs: dict[str, Any] = dict(cb_kwargs) if cb_kwargs else {}
        self.meta: dict[str, Any] = dict(meta) if meta else {}
        self.requests_kwargs: dict[str, Any] = {}
        self.id = ""
        self.parent_id = ""
        self.depth = 0
        self.lease_token = ""
        self.way: Way = NO_WAY
        if kwargs:
            self._take(kwargs)

    def _take(self, kwargs: Mapping[str, Any]) -> None:
        for name, value in kwargs.items():
            if name not in HTTP_OPTIONS and hasattr(type(self), name):
                raise TypeError(f"Request() does not take an argument {name!r} ({self.url})")
            setattr(self, name, value)

    @property
    def custom(self) -> dict[str, Any]:
        """Arguments and attributes that are the spider's own. Changes take effect."""
        return self.__dict__

    @property
    def dont_filter(self) -> bool:
        """The opposite of `filter_repeat`."""
        return not self.filter_repeat

    @dont_filter.setter
    def dont_filter(self, value: bool) -> None:
        self.filter_repeat = not value

    @property
    def callback_name(self) -> str:
        """The name of the callback; empty when none was given, which means `parse`."""
        return name_of(self.callback)

    @property
    def full_url(self) -> str:
        """The URL that is sent: with `params` after the URL's own parameters."""
        return full_url(self)

    @property
    def fingerprint(self) -> str:
        """16 hex characters that are equal for requests to the same page (no `drop_params`)."""
        return request_id(fingerprint(self))

    def copy(self) -> Self:
        """Return a new request with the same content, not yet queued: no id, no lease token.

        Its containers are new, the values in them are shared.
        """
        new = object.__new__(type(self))
        for name in _COPIED:
            setattr(new, name, getattr(self, name))
        for name in _CONTAINERS:
            setattr(new, name, dict(getattr(self, name)))
        new.__dict__.update(self.__dict__)
        new.id = new.lease_token = ""
        return new

    def replace(self, **changes: Any) -> Self:
        """Return a copy with other values for these arguments or attributes.

        Raises as the constructor does for the new URL and method.
        """
        new = self.copy()
        for name, value in changes.items():
            setattr(new, name, value)
        if "url" in changes:
            new.url = clean_url(new.url)
            new.problem = None
        if "method" in changes:
            new.method = _checked_method(new.method)
        return new

    def to_dict(self) -> dict[str, Any]:
        """Return the content by argument names; the callback as its name. `from_dict` reads it."""
        record = {name: getattr(self, name) for name in _RECORDED}
        for name in _CONTAINERS:
            record[name] = dict(getattr(self, name))
        record["callback"] = self.callback_name or None
        record["download_midware"] = name_of(self.download_midware) or None
        record["custom"] = dict(self.__dict__)
        if not record["requests_kwargs"].get("headers", True):
            del record["requests_kwargs"]["headers"]
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the request that `to_dict` described."""
        arguments = dict(record)
        options = arguments.pop("requests_kwargs", None) or {}
        custom = arguments.pop("custom", None) or {}
        placed = {name: arguments.pop(name) for name in _PLACED if name in arguments}
        request = cls(arguments.pop("url"), **arguments, **options, **custom)
        for name, value in placed.items():
            setattr(request, name, value)
        return request

    def __lt__(self, other: Request) -> bool:
        return self.priority < other.priority

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.url}>"


def name_of(callback: Callback | None) -> str:
    """Return the name under which the spider knows a method; empty when there is none."""
    if callback is None or isinstance(callback, str):
        return callback or ""
    return str(getattr(callback, "__name__", type(callback).__name__))


def _checked_method(method: str) -> str:
    if not isinstance(method, str):
        raise TypeError(f"method must be str, not {method!r}")
    if not _TOKEN(method):
        raise RequestError(f"{method!r} is not an HTTP method")
    return method.upper()


_CONTAINERS = ("cb_kwargs", "meta", "requests_kwargs")
_PLACED = ("id", "parent_id", "depth")
_COPIED = tuple(
    name for name in Request.__slots__ if not name.startswith("__") and name not in _CONTAINERS
)
_RECORDED = tuple(
    name
    for name in _COPIED
    if name not in ("callback", "download_midware", "lease_token", "problem", "way")
)
