"""The response: what a site answered, and the ways to read and to follow it."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from re import Pattern
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from urllib.parse import quote

from parsel import Selector, SelectorList
from w3lib.encoding import to_unicode

from orbweb.errors import ConfigError, ResponseError
from orbweb.model.charset import UTF16_BOMS, encoding_of, known_encoding
from orbweb.model.request import Callback, Request
from orbweb.model.url import UrlBase

if TYPE_CHECKING:
    from bs4 import BeautifulSoup

T = TypeVar("T")

_BASE_SCAN_BYTES = 16_384
_COMMENT = re.compile(r"<!--.*?(?:-->|$)", re.S)
_BASE_HREF = re.compile(
    r"""<base\s(?:[^<>]*?\s)?href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"']+))""", re.I
)
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_LINK_TAGS = frozenset({"a", "area", "link"})
_UTF8_NAMES = frozenset({"utf-8", "utf8", "ascii"})


class Headers(dict[str, str]):
    """Response headers: names are lower case, and may be asked for in any case."""

    __slots__ = ()

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class _once(Generic[T]):
    """A property computed at its first use. `functools.cached_property` holds one lock for all
    responses before Python 3.12, so threads would parse one page at a time."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, response: Response, owner: type[Response]) -> T:
        value = self._compute(response)
        response.__dict__[self._name] = value
        return value


class Response:
    """What a site answered. `elapsed` is in seconds; `history` holds the URLs redirected from.

    `encoding` is found when it is first needed (see `orbweb.model.charset.encoding_of`) and can be
    set, also after the text was read.
    """

    def __init__(
        self,
        url: str,
        status_code: int = 200,
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
        cookies: Mapping[str, str] | None = None,
        request: Request | None = None,
        encoding: str | None = None,
        elapsed: float | None = None,
        history: Iterable[str] = (),
    ) -> None:
        self.url = url
        self.status_code = status_code
        self.content = content
        self.headers = Headers()
        if headers:
            self.headers.update((name.lower(), value) for name, value in headers.items())
        self.cookies: dict[str, str] = dict(cookies) if cookies else {}
        self.request = request
        self.elapsed = elapsed
        self.history: list[str] = list(history)
        self.proxy = ""
        """Through which proxy it came: its place, without user and password."""
        self._encoding: str | None = None
        if encoding is not None:
            self.encoding = encoding

    def __repr__(self) -> str:
        return f"<Response {self.status_code} {self.url}>"

    @property
    def ok(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status_code < 300

    @property
    def status(self) -> int:
        """`status_code` under Scrapy's name."""
        return self.status_code

    @property
    def body(self) -> bytes:
        """`content` under Scrapy's name."""
        return self.content

    @property
    def meta(self) -> dict[str, Any]:
        """`meta` of the request. Raises `ResponseError` when there is no request."""
        return self._asked().meta

    @property
    def cb_kwargs(self) -> dict[str, Any]:
        """`cb_kwargs` of the request. Raises `ResponseError` when there is no request."""
        return self._asked().cb_kwargs

    def _asked(self) -> Request:
        if self.request is None:
            raise ResponseError(f"{self!r} does not belong to a request")
        return self.request

    @property
    def encoding(self) -> str:
        """The codec of `text`. Setting an unknown one raises `ResponseError`."""
        if self._encoding is None:
            self._encoding = encoding_of(self.content, self.headers.get("content-type", ""))
        return self._encoding

    @encoding.setter
    def encoding(self, label: str) -> None:
        codec = known_encoding(label)
        if codec is None:
            raise ResponseError(f"unknown encoding {label!r} for {self!r}")
        self._encoding = codec
        for cached in ("text", "selector", "bs4", "_base"):
            self.__dict__.pop(cached, None)

    @_once
    def text(self) -> str:
        """The body as text, without a byte order mark; bytes that do not fit become U+FFFD."""
        return to_unicode(self.content, self.encoding).removeprefix("\ufeff")

    def json(self, **options: Any) -> Any:
        """Parse the body as JSON; `options` go to `json.loads`. Raises `ResponseError`."""
        try:
            if self._encoding is None and "charset" not in self.headers.get("content-type", ""):
                return json.loads(self.content, **options)
            return json.loads(self.text, **options)
        except ValueError as error:
            raise ResponseError(
                f"{self!r} is not JSON ({error}); it begins with {self.content[:60]!r}"
            ) from error

    @_once
    def selector(self) -> Selector:
        """The parsed document (parsel). XML when the content type says so, else HTML."""
        kind = "xml" if _is_xml(self.headers.get("content-type", "")) else "html"
        whole = self.content and not self.content.startswith(codecs.BOM_UTF8)
        if whole and self.encoding in _UTF8_NAMES:
            return Selector(body=self.content, encoding="utf-8", type=kind, base_url=self.url)
        return Selector(text=self.text, type=kind, base_url=self.url)

    def css(self, query: str) -> SelectorList[Selector]:
        """Select by CSS, with parsel's `::text` and `::attr(name)`."""
        return self.selector.css(query)

    def xpath(self, query: str, **variables: Any) -> SelectorList[Selector]:
        """Select by XPath; `variables` fill `$names` in it, `namespaces` adds prefixes."""
        return self.selector.xpath(query, **variables)

    def re(self, regex: str | Pattern[str]) -> list[str]:
        """All matches of a regular expression in the document (parsel's rules for groups)."""
        return self.selector.re(regex)

    def re_first(self, regex: str | Pattern[str], default: str | None = None) -> str | None:
        """The first match of a regular expression in the document, else `default`."""
        return self.selector.re_first(regex, default=default)

    @_once
    def bs4(self) -> BeautifulSoup:
        """The document as BeautifulSoup. Raises `ConfigError` when that is not installed."""
        try:
            from bs4 import BeautifulSoup
        except ImportError as error:
            raise ConfigError(
                "response.bs4 needs BeautifulSoup: pip install beautifulsoup4"
            ) from error
        return BeautifulSoup(self.text, "lxml")

    @_once
    def _base(self) -> UrlBase:
        return UrlBase(self._base_url())

    def _base_url(self) -> str:
        head = self.content[:_BASE_SCAN_BYTES]
        if b"<base" not in head and b"<BASE" not in head and not head.startswith(UTF16_BOMS):
            return self.url
        match = _BASE_HREF.search(_COMMENT.sub("", self.text[:_BASE_SCAN_BYTES]))
        if match is None:
            return self.url
        return UrlBase(self.url).join(unescape(match[1] or match[2] or match[3] or ""))

    def urljoin(self, url: str) -> str:
        """Return a link of this page as an absolute URL; `<base href>` counts."""
        return self._base.join(url)

    def follow(
        self, url: str | Selector | Any, callback: Callback | None = None, **options: Any
    ) -> Request:
        """Return a request for a link of this page: a URL, an `<a>` element or its selector.

        `options` are those of `Request`. A link that cannot be fetched (`mailto:`, a malformed
        one) raises nothing, so that it cannot break a page: its request has the reason as
        `problem` and is counted instead of queued. Raises `ResponseError` for an element
        without link and for anything that is no link.
        """
        href = url if type(url) is str else _href(url)
        if href is None:
            raise ResponseError(f"no link to follow in {url!r} of {self!r}")
        target = self._base.join(href)
        if not target.isascii():
            target = self._encoded(target)
        return Request(target, callback=callback, **options)

    def follow_all(
        self,
        urls: Iterable[str | Selector | Any] | None = None,
        callback: Callback | None = None,
        *,
        css: str | None = None,
        xpath: str | None = None,
        **options: Any,
    ) -> Iterator[Request]:
        """Return requests for many links: exactly one of `urls`, `css`, `xpath`. See `follow`.

        Elements that have no link (`<a>` without href) are passed over.
        """
        if sum(source is not None for source in (urls, css, xpath)) != 1:
            raise TypeError("follow_all() takes exactly one of urls, css and xpath")
        if css is not None:
            urls = self.css(css)
        elif xpath is not None:
            urls = self.xpath(xpath)
        links = list(urls or ())
        hrefs = (link if type(link) is str else _href(link) for link in links)
        return (self.follow(href, callback, **options) for href in hrefs if href is not None)

    def _encoded(self, url: str) -> str:
        """Escape the query in the page's encoding, as browsers do."""
        if self.encoding in _UTF8_NAMES:
            return url
        head, mark, query = url.partition("?")
        try:
            return head + mark + _escape_query(query, self.encoding)
        except UnicodeEncodeError:
            return url

    def to_dict(self) -> dict[str, Any]:
        """Return the content by argument names, the request left out. `from_dict` reads it."""
        return {
            "url": self.url,
            "status_code": self.status_code,
            "content": self.content,
            "headers": dict(self.headers),
            "cookies": dict(self.cookies),
            "encoding": self._encoding,
            "elapsed": self.elapsed,
            "history": list(self.history),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], request: Request | None = None) -> Self:
        """Return the response that `to_dict` described."""
        return cls(**record, request=request)


def _is_xml(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("text/xml", "application/xml") or (
        kind.endswith("+xml") and kind != "application/xhtml+xml"
    )


def _href(link: Any) -> str | None:
    """Return the link of an element, a selector or a text; None when an element has none."""
    if isinstance(link, SelectorList):
        link = link[0] if link else None
    if isinstance(link, Selector):
        link = link.root
    if isinstance(link, str):
        return str(link)
    tag = getattr(link, "tag", None) or getattr(link, "name", None)
    if not isinstance(tag, str):
        raise ResponseError(f"cannot follow {link!r}: give a URL or an <a> element")
    if tag.rpartition("}")[2].lower() not in _LINK_TAGS:
        raise ResponseError(f"cannot follow <{tag}>: only <a>, <area> and <link> have links")
    href = link.get("href")
    return None if href is None else str(href)


def _escape_query(query: str, encoding: str) -> str:
    return _NOT_ASCII.sub(lambda match: quote(match[0].encode(encoding), safe=""), query)
