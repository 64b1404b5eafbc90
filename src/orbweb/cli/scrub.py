"""Takes secrets out of text that leaves the machine: by their names, by their looks, by value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from orbweb.log import MASK, SECRET_WORDS, is_secret_name, mask_address, mask_secrets
from orbweb.model.request import Request

SHORTEST = 4
"""Characters: what is shorter is taken out by its name only, as it may stand anywhere."""

_NAMED = re.compile(
    rf"(?P<name>\b[\w.%-]*{SECRET_WORDS}[\w.%-]*\\?[\"']?\s*(?:=|:|%3D)\s*\\?[\"']?)"
    rf"(?!{re.escape(MASK)})"
    r"(?P<value>(?:(?:basic|bearer|digest|token)\s+)?[^\s\"'\\&<>,;}\])]+)",
    re.IGNORECASE,
)
_COOKIES = re.compile(
    r"(?P<name>\b(?:set-)?cookie\\?[\"']?\s*[:=]\s*\\?[\"']?)[^\n\"]*", re.IGNORECASE
)
_USER = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/?#@\"'<>]+@", re.IGNORECASE)
_SCHEMES = re.compile(r"\b(?P<name>basic|bearer|digest)\s+[A-Za-z0-9._~+/=-]{6,}", re.IGNORECASE)
_JWT = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+")
_SHORT_QUERY = re.compile(r"(?P<name>[?&](?:key|code|user|login)=)[^\s&#\"'<>]+", re.IGNORECASE)
"""Most often no secrets, so they are masked only in what leaves the machine."""


class Scrubber:
    """Masks what may be a secret; rather too much than too little."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        """`known`: values that are secrets wherever they stand."""
        self._found: set[str] = set()
        self._known: list[str] = []
        self.learn(known)

    def learn(self, values: Iterable[str]) -> None:
        """These are secrets too, wherever they stand."""
        new = {each for each in values if len(each) >= SHORTEST} - self._found
        if new:
            self._found |= new
            self._known = sorted(self._found, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        for value in self._known:
            text = text.replace(value, MASK)
        text = _USER.sub(rf"\g<scheme>{MASK}@", text)
        text = mask_secrets(text)
        text = _COOKIES.sub(rf"\g<name>{MASK}", text)
        text = _NAMED.sub(rf"\g<name>{MASK}", text)
        text = _SHORT_QUERY.sub(rf"\g<name>{MASK}", text)
        text = _SCHEMES.sub(rf"\g<name> {MASK}", text)
        return _JWT.sub(MASK, text)

    def value(self, value: Any) -> Any:
        """The same for all texts of a value that JSON can hold; what stands under a secret's name
        is masked whole."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, Mapping):
            return {
                self(str(key)): MASK if part and is_secret_name(str(key)) else self.value(part)
                for key, part in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(part) for part in value]
        return value


def secrets_of(values: Mapping[str, Any], secret: Iterable[str]) -> Iterator[str]:
    """The secret parts of settings, those that are declared `secret` and those named like one."""
    declared = set(secret)
    for name, value in values.items():
        for text in _texts(value):
            if is_secret_name(name):
                yield text
            if name in declared or "://" in text:
                yield from _parts(text)


def secrets_of_request(request: Request) -> Iterator[str]:
    """What a request says of who sends it: its secret headers, cookies and parameters."""
    options = request.requests_kwargs
    for name, value in (options.get("headers") or {}).items():
        if not is_secret_name(str(name)):
            continue
        for text in _texts(value):
            yield text
            yield text.rpartition(" ")[2]
            if "cookie" in str(name).lower():
                yield from (pair.partition("=")[2].strip() for pair in text.split(";"))
    yield from _texts(options.get("cookies"))
    yield from _texts(options.get("auth"))
    for named in (request.meta, request.cb_kwargs, options.get("params"), options.get("data")):
        if isinstance(named, Mapping):
            yield from secrets_of(named, ())


def secrets_of_environment(environ: Mapping[str, str]) -> Iterator[str]:
    """Values of variables that are named like a secret, and passwords in the others."""
    for name, value in environ.items():
        if is_secret_name(name):
            yield value
        if "://" in value:
            yield from _parts(value)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for part in value.values() for text in _texts(part))
    elif isinstance(value, list | tuple):
        yield from (text for part in value for text in _texts(part))


def _parts(text: str) -> Iterator[str]:
    """Passwords of addresses, and values of options such as `sasl.password=…`."""
    for address in text.split(","):
        try:
            found = urlsplit(address if "://" in address else f"x://{address}")
            password = found.password
        except ValueError:
            password = None
        if password:
            yield password
            yield unquote(password)
        elif (shown := mask_address(address)) != address:
            before, _, after = shown.partition(MASK)
            yield address[len(before) : len(address) - len(after)]
        name, equals, value = address.partition("=")
        if equals and is_secret_name(name.rpartition("?")[2]):
            yield value
