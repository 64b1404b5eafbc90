"""A curl command line, as browsers copy it, as a request. Pure; nothing of it is executed."""

from __future__ import annotations

import getopt
import re
import shlex
from typing import Any
from urllib.parse import quote_plus

from orbweb.errors import ConfigError
from orbweb.model.request import Request

_FORM = "application/x-www-form-urlencoded"
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_ANSI_QUOTED = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPED = dict(zip("nrtabfve", "\n\r\t\a\b\f\v\x1b", strict=True))

_LONG_NAMES = {
    "-X": "--request",
    "-H": "--header",
    "-b": "--cookie",
    "-d": "--data",
    "-u": "--user",
    "-x": "--proxy",
    "-A": "--user-agent",
    "-e": "--referer",
    "-m": "--max-time",
    "-k": "--insecure",
    "-I": "--head",
    "-G": "--get",
    "-L": "--location",
    "-s": "--silent",
    "-S": "--show-error",
    "-v": "--verbose",
    "-i": "--include",
}
_SHORT = "X:H:b:d:u:x:A:e:m:kIGLsSvi"
_WITH_VALUE = (
    *("request", "header", "cookie", "data", "data-ascii", "data-raw", "data-binary"),
    *("data-urlencode", "json", "user", "proxy", "user-agent", "referer", "max-time", "url"),
)
_OF_THE_OUTPUT = ("location", "compressed", "silent", "show-error", "verbose", "include")
"""Redirects are followed and content codings undone in any case; the others say what is shown."""
_FLAGS = ("insecure", "head", "get", *_OF_THE_OUTPUT)
_BODIES = {"--data": "-d", "--data-ascii": "-d", "--data-binary": "--data-binary"}


def is_curl(text: str) -> bool:
    """Whether a text is a curl command line rather than an address."""
    return text.split(None, 1)[:1] in (["curl"], ["curl.exe"])


def request_from_curl(line: str, **options: Any) -> Request:
    """The request that the command line would send; `options` are further ones of `Request`.

    Redirects are followed and content codings undone in any case. Raises `ConfigError` for an
    option that is not understood, for files that curl would read, and when there is no URL.
    """
    given = _Given()
    try:
        found, urls = getopt.gnu_getopt(
            _words(line)[1:], _SHORT, [*(f"{name}=" for name in _WITH_VALUE), *_FLAGS]
        )
    except getopt.GetoptError as error:
        raise ConfigError(f"curl line: {error}; copy the line without it") from None
    for name, value in found:
        given.take(_LONG_NAMES.get(name, name), value)
    return given.request([*given.urls, *urls], options)


class _Given:
    """What the options of a line ask for."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.headers: dict[str, str] = {}
        self.defaults: dict[str, str] = {}
        """Headers that only take effect when the line does not set them."""
        self.arguments: dict[str, Any] = {}
        self.method = ""
        self.bodies: list[str] = []
        self.json: str | None = None
        self.in_query = False

    def take(self, name: str, value: str) -> None:
        match name:
            case "--url":
                self.urls.append(value)
            case "--request":
                self.method = value
            case "--head":
                self.method = self.method or "HEAD"
            case "--get":
                self.in_query = True
            case "--header":
                self._header(value)
            case "--cookie":
                self.arguments.setdefault("cookies", {}).update(_cookies(value))
            case "--json":
                self.json = _no_file(name, value)
            case "--data-raw":
                self.bodies.append(value)
            case "--data-urlencode":
                self.bodies.append(_urlencoded(value))
            case "--user":
                user, _, password = value.partition(":")
                self.arguments["auth"] = (user, password)
            case "--proxy":
                self.arguments["proxy"] = value if _SCHEME.match(value) else f"http://{value}"
            case "--insecure":
                self.arguments["verify"] = False
            case "--max-time":
                self.arguments["timeout"] = _seconds(value)
            case "--user-agent":
                self.defaults["User-Agent"] = value
            case "--referer":
                self.defaults["Referer"] = value
            case _ if name in _BODIES:
                self.bodies.append(_no_file(_BODIES[name], value))

    def request(self, urls: list[str], options: dict[str, Any]) -> Request:
        if len(urls) != 1:
            raise ConfigError(f"the curl line has {len(urls)} URLs; one is wanted")
        url = urls[0] if _SCHEME.match(urls[0]) else f"http://{urls[0]}"
        body = self._body()
        if body is not None and self.in_query:
            url, body = f"{url}{'&' if '?' in url else '?'}{body}", None
        if body is not None:
            kind = "application/json" if self.json is not None else _FORM
            self.defaults.setdefault("Content-Type", kind)
            if self.json is not None:
                self.defaults.setdefault("Accept", kind)
            self.arguments["content"] = body
        named = {name.lower() for name in self.headers}
        headers = {
            **self.headers,
            **{name: value for name, value in self.defaults.items() if name.lower() not in named},
        }
        if headers:
            self.arguments["headers"] = headers
        method = self.method or ("GET" if body is None else "POST")
        return Request(url, method, **self.arguments, **options)

    def _body(self) -> str | None:
        if self.json is None:
            return "&".join(self.bodies) if self.bodies else None
        if self.bodies:
            raise ConfigError("curl line: --json and -d exclude each other")
        return self.json

    def _header(self, line: str) -> None:
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name:
            raise ConfigError(f"curl line: -H {name!r}: NAME: VALUE is wanted")
        known = next((each for each in self.headers if each.lower() == name.lower()), None)
        if known is not None:
            self.headers[known] = f"{self.headers[known]}, {value}"
        elif value:
            self.headers[name] = value


def _words(line: str) -> list[str]:
    """The words of a shell line, `$'…'` and broken lines among them."""
    plain = _ANSI_QUOTED.sub(lambda found: shlex.quote(_unescaped(found[1])), line)
    try:
        return shlex.split(plain.replace("\\\r\n", " ").replace("\\\n", " "))
    except ValueError as error:
        raise ConfigError(f"curl line: {error}") from None


def _unescaped(text: str) -> str:
    def one(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "ux" and len(code) > 1:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code.isdigit() else _ESCAPED.get(code, code)

    return _ESCAPE.sub(one, text)


def _cookies(line: str) -> dict[str, str]:
    found = {}
    for pair in line.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals:
            found[name] = value
        elif name:
            raise ConfigError("curl line: -b: NAME=VALUE is wanted; files are not read")
    return found


def _urlencoded(text: str) -> str:
    name, equals, value = text.partition("=")
    if not equals:
        return quote_plus(_no_file("--data-urlencode", text))
    return f"{name}={quote_plus(value)}" if name else quote_plus(value)


def _no_file(option: str, text: str) -> str:
    if text.startswith("@"):
        raise ConfigError(f"curl line: {option} {text}: files are not read, give the content")
    return text


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"curl line: -m {text}: seconds are wanted") from None
