"""URLs: which ones can be fetched, their canonical form, their host, and joining them to a base."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from urllib.parse import quote_from_bytes, unquote, unquote_to_bytes, urljoin, urlsplit

import idna

from orbweb.errors import RequestError
from orbweb.model.reasons import Reason

NO_PARAMS: frozenset[str] = frozenset()

_HOST = r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*"
_PORT = r"(?::(?:[1-9][0-9]{1,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?"
_VALUE = r"[A-Za-z0-9_.~!$'()*+,/:;?@-]*"
_PAIR = rf"[A-Za-z0-9_.~-]+={_VALUE}"

_FETCHABLE = re.compile(rf"https?://{_HOST}{_PORT}(?:[/?#][!-~]*)?").fullmatch
"""Most URLs pass here without being parsed; the others are judged by `clean_url`."""

_CANONICAL = re.compile(
    rf"https?://{_HOST}(?!:80/|:443/){_PORT}"
    rf"(?:/(?!\.)[A-Za-z0-9_.~!$&'()*+,;=:@-]*)+"
    rf"(\?{_PAIR}(?:&{_PAIR})*)?"
).fullmatch
"""URLs that are canonical already, but for the order and choice of their parameters (group 1)."""

_BLANKS = re.compile(r"[\t\n\r]")
_EDGES = "".join(map(chr, range(0x21)))
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?!\d)", re.IGNORECASE).match
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_ASCII_HOST = re.compile(_HOST).fullmatch
_PATH_TOKEN = re.compile(rb"%([0-9A-Fa-f]{2})|([^A-Za-z0-9_.~!$&'()*+,;=:@/-])")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE_VALUE = " !$'()*,/:;?@"
_SAFE_USERINFO = "!$&'()*+,;=:%"
_DEFAULT_PORTS = {"http": 80, "https": 443}


class BadUrlError(RequestError):
    """The URL can never be fetched; `reason` is `scheme` or `bad_url`."""

    def __init__(self, url: str, reason: Reason, why: str) -> None:
        super().__init__(f"cannot fetch {url!r}: {why}")
        self.url = url
        self.reason = reason
        self.why = why

    def __reduce__(self) -> tuple[type[BadUrlError], tuple[str, Reason, str]]:
        return (BadUrlError, (self.url, self.reason, self.why))


@lru_cache(maxsize=16_384)
def _is_clean(url: str) -> bool:
    """Remembered, because the links of a site's menu come again on every page."""
    return _FETCHABLE(url) is not None


def clean_url(url: str) -> str:
    """Return `url` without the white space that browsers ignore, once it is sure to be fetchable.

    Raises `TypeError` when it is not text, and `BadUrlError` when the scheme is not http or https
    or when there is no valid host or port in it.
    """
    if not isinstance(url, str):
        raise TypeError(f"a URL must be str, not {type(url).__name__}: {url!r}")
    if _is_clean(url):
        return url
    cleaned = _BLANKS.sub("", url.strip(_EDGES))
    scheme, netloc = _split_origin(cleaned)
    _authority(scheme, netloc, cleaned)
    return cleaned


def with_scheme(text: str, scheme: str) -> str:
    """An address as a person types it: `shop.example:8000/p` is one too, `mailto:x@y` is none."""
    return text if "://" in text or _OTHER_SCHEME(text) else f"{scheme}://{text}"


def why_unfetchable(url: str) -> str:
    """What is wrong with a URL, in one phrase; empty when it can be fetched."""
    try:
        clean_url(url)
    except BadUrlError as error:
        return error.why
    return ""


def canonical_url(url: str, drop_params: frozenset[str] = NO_PARAMS) -> str:
    """Return the form under which two spellings of one page are equal.

    Parameters are sorted, blank ones kept; the fragment and the scheme's default port are dropped;
    the host is lower case and IDNA; dot segments are resolved and percent-encoding is normalised
    (RFC 3986 §6.2); an empty path is `/`. `drop_params` names parameters to leave out; a name that
    ends in `*` stands for all that begin so. Raises `BadUrlError`.
    """
    match = _CANONICAL(url)
    if match is None:
        return _canonical_slow(url, drop_params)
    query = match[1]
    if query is None or (not drop_params and "&" not in query):
        return url
    pairs = query[1:].split("&")
    if drop_params:
        pairs = _without(pairs, drop_params)
    return _with_query(url[: match.start(1)], pairs)


def host_of(url: str) -> str:
    """Return the host that politeness belongs to: lower case, IDNA, with `:port` unless default.

    Raises `BadUrlError`.
    """
    end = url.find("/", 8)
    return _host_of_origin(url if end < 0 else url[:end])


def beside(url: str, text: str) -> str:
    """What is said of a page, where its URL stands already: without naming it once more."""
    for head in (f"{url}: ", f"{url} ", f"cannot fetch {url!r}: "):
        text = text.removeprefix(head)
    text = text.replace(f" disallows {url} for ", " disallows it for ")
    return text.removesuffix(f" for {url}")


def add_params(url: str, query: str) -> str:
    """Return `url` with `query` (already encoded) after its own parameters."""
    if not query:
        return url
    url, hash_sign, fragment = url.partition("#")
    if "?" not in url:
        url += "?"
    elif not url.endswith(("?", "&")):
        url += "&"
    return f"{url}{query}{hash_sign}{fragment}"


class UrlBase:
    """A base URL taken apart once, so that joining the many links of a page to it is cheap."""

    __slots__ = ("_directory", "_origin", "_scheme", "url")

    def __init__(self, url: str) -> None:
        self.url = url
        self._scheme = url[: url.find(":") + 1]
        start = url.find("/", len(self._scheme) + 2)
        plain = url.startswith(("http://", "https://")) and not _has_dot_segment(url)
        path = url.partition("?")[0].partition("#")[0]
        self._origin = url[:start] if plain and 0 < start < len(path) else ""
        self._directory = path[: path.rfind("/") + 1] if self._origin else ""

    def join(self, href: str) -> str:
        """Return `href` as an absolute URL, as `urllib.parse.urljoin` does."""
        href = href.strip(_EDGES)
        if href.startswith(("http://", "https://")):
            return href
        if self._origin and not _has_dot_segment(href):
            if href[:1] == "/":
                return self._origin + href if href[1:2] != "/" else self._scheme + href
            if href[:1] not in "?#." and ":" not in href:
                return self._directory + href
        return _join_slow(self.url, href)


def _join_slow(base: str, href: str) -> str:
    try:
        return urljoin(base, href)
    except ValueError:
        return href


def _has_dot_segment(url: str) -> bool:
    return "/." in url


def _without(pairs: list[str], drop_params: frozenset[str]) -> list[str]:
    prefixes = tuple(name[:-1] for name in drop_params if name.endswith("*"))
    kept = []
    for pair in pairs:
        name = unquote(pair.partition("=")[0].replace("+", " "))
        if name not in drop_params and not (prefixes and name.startswith(prefixes)):
            kept.append(pair)
    return kept


def _with_query(url: str, pairs: list[str]) -> str:
    if not pairs:
        return url
    pairs.sort()
    return f"{url}?{'&'.join(pairs)}"


@lru_cache(maxsize=4096)
def _canonical_slow(url: str, drop_params: frozenset[str]) -> str:
    cleaned = _BLANKS.sub("", url.strip(_EDGES)).partition("#")[0]
    scheme, netloc = _split_origin(cleaned)
    rest = cleaned[cleaned.index("//") + 2 + len(netloc) :]
    path, _, query = rest.partition("?")
    pairs = [_canonical_pair(pair) for pair in query.split("&") if pair]
    if drop_params:
        pairs = _without(pairs, drop_params)
    return _with_query(
        f"{scheme}://{_authority(scheme, netloc, cleaned)}{_canonical_path(path)}", pairs
    )


def _canonical_path(path: str) -> str:
    escaped = _PATH_TOKEN.sub(_canonical_escape, path.encode("utf-8", "surrogatepass"))
    segments = escaped.decode("ascii").split("/")[1:]
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            del kept[-1:]
        elif segment != ".":
            kept.append(segment)
    if segments and segments[-1] in (".", ".."):
        kept.append("")
    return "/" + "/".join(kept)


def _canonical_escape(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        return b"%%%02X" % match[2][0]
    code = int(match[1], 16)
    return bytes((code,)) if code in _UNRESERVED else b"%%%02X" % code


def _canonical_pair(pair: str) -> str:
    name, _, value = pair.partition("=")
    return f"{_canonical_form(name)}={_canonical_form(value)}"


def _canonical_form(text: str) -> str:
    raw = unquote_to_bytes(text.replace("+", " ").encode("utf-8", "surrogatepass"))
    return quote_from_bytes(raw, safe=_SAFE_VALUE).replace(" ", "+")


def _split_origin(url: str) -> tuple[str, str]:
    """Return scheme and authority of a URL that can be fetched."""
    match = _SCHEME.match(url)
    if match is None:
        raise BadUrlError(
            url, Reason.BAD_URL, "it has no scheme; write https://…, or use response.follow()"
        )
    scheme = match[1].lower()
    if scheme not in _DEFAULT_PORTS:
        raise BadUrlError(url, Reason.SCHEME, f"{scheme}: is neither http nor https")
    if not url.startswith("//", match.end()):
        raise BadUrlError(url, Reason.BAD_URL, "there is no // after the scheme")
    try:
        return scheme, urlsplit(url).netloc
    except ValueError as error:
        raise BadUrlError(url, Reason.BAD_URL, str(error)) from error


@lru_cache(maxsize=4096)
def _host_of_origin(origin: str) -> str:
    cleaned = _BLANKS.sub("", origin.strip(_EDGES))
    scheme, netloc = _split_origin(cleaned)
    return _authority(scheme, netloc, cleaned).rpartition("@")[2]


def _authority(scheme: str, netloc: str, url: str) -> str:
    """Return `user@host:port` in canonical form."""
    userinfo, at, place = netloc.rpartition("@")
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, ""
    if port and not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise BadUrlError(url, Reason.BAD_URL, f"{port!r} is not a port")
    try:
        host = _canonical_host(host)
    except ValueError as error:
        raise BadUrlError(url, Reason.BAD_URL, f"{host!r} is not a host name") from error
    if at:
        raw = userinfo.encode("utf-8", "surrogatepass")
        host = f"{quote_from_bytes(raw, safe=_SAFE_USERINFO)}@{host}"
    if port and int(port) != _DEFAULT_PORTS[scheme]:
        host = f"{host}:{int(port)}"
    return host


def _canonical_host(host: str) -> str:
    """Return the host in lower case and IDNA; raises `ValueError` when it cannot be one."""
    if host.startswith("["):
        if not host.endswith("]"):
            raise ValueError(host)
        return f"[{ipaddress.IPv6Address(host[1:-1]).compressed}]"
    host = unquote(host).lower()
    if not host.isascii():
        host = _to_idna(host)
    host = host.removesuffix(".")
    if not _ASCII_HOST(host):
        raise ValueError(host)
    return host


def _to_idna(host: str) -> str:
    """Encode as browsers do (UTS 46); names that IDNA 2008 leaves out fall back to IDNA 2003."""
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except idna.IDNAError:
        return host.encode("idna").decode("ascii").lower()
