"""Start entries: what people push into a start key, and the request that each stands for."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest

from orbweb.adapters.scrapy.utils import bytes_to_str

FIELDS = frozenset(
    {"url", "method", "headers", "body", "json", "cookies", "meta", "cb_kwargs", "priority"}
    | {"dont_filter", "callback", "errback", "encoding", "flags", "formdata"}
)
"""Keys of a JSON entry that mean what the argument of a request with that name means."""

OTHER_FIELDS = ("auto", "meta", "form", "reject")
"""What `ORBWEB_START_FIELDS` may say of other keys.

`auto`: form fields of a POST, as in scrapy-redis, and `meta` of any other request. `form` is
scrapy-redis's own rule, by which they take the place of a GET's query.
"""


class StartEntryError(ValueError):
    """A start entry that no request can be made of; the text says what would be right."""


def read_entry(data: bytes | str, encoding: str) -> dict[str, Any]:
    """The fields of an entry: of a JSON object, or `url` alone of a plain one.

    Raises `StartEntryError`.
    """
    try:
        text = bytes_to_str(data, encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise StartEntryError(f"it is no {encoding} text: {error}") from error
    try:
        record = json.loads(text)
    except ValueError:
        record = text.strip()
    if isinstance(record, str):
        record = {"url": record}
    if not isinstance(record, dict):
        raise StartEntryError(f"a URL or a JSON object is wanted, not {text[:200]}")
    if not isinstance(record.get("url"), str) or not record["url"]:
        raise StartEntryError('it has no "url"')
    return record


def request_from_entry(
    record: dict[str, Any],
    spider: Spider,
    *,
    other_fields: str = "auto",
    callback: Callable[..., Any] | None = None,
) -> Request:
    """The request that the fields of an entry describe; `callback` where they name none.

    It is not filtered unless `dont_filter` is false. Raises `StartEntryError`.
    """
    given = {name: value for name, value in record.items() if value is not None}
    other = {name: given.pop(name) for name in list(given) if name not in FIELDS}
    form = _typed(given, "formdata", dict, {})
    default = "POST" if "formdata" in given or "json" in given else "GET"
    method = _typed(given, "method", str, default).upper()
    arguments: dict[str, Any] = {
        "method": method,
        "headers": _typed(given, "headers", dict, None),
        "cookies": _typed(given, "cookies", dict | list, None),
        "meta": _typed(given, "meta", dict, {}),
        "cb_kwargs": _typed(given, "cb_kwargs", dict, None),
        "priority": _typed(given, "priority", int, 0),
        "dont_filter": _typed(given, "dont_filter", bool, True),
        "encoding": _typed(given, "encoding", str, "utf-8"),
        "flags": _typed(given, "flags", list, None),
        "callback": _method(spider, given, "callback") or callback,
        "errback": _method(spider, given, "errback"),
    }
    if other and other_fields == "reject":
        raise StartEntryError(f"unknown keys {', '.join(sorted(other))}; known: {_known()}")
    if other and (other_fields == "form" or (other_fields == "auto" and method == "POST")):
        form = {**form, **other}
    elif other:
        arguments["meta"] = {**other, **arguments["meta"]}
    return _made(given, form, arguments)


def _made(given: dict[str, Any], form: dict[str, Any], arguments: dict[str, Any]) -> Request:
    bodies = [name for name in ("body", "json", "formdata") if name in given]
    if len(bodies) > 1 or (form and bodies and bodies != ["formdata"]):
        raise StartEntryError(f"only one body is possible, not {', '.join(bodies)} and form fields")
    try:
        if form:
            return FormRequest(given["url"], formdata=_form(form), **arguments)
        if "json" in given:
            return JsonRequest(given["url"], data=given["json"], **arguments)
        return Request(given["url"], body=_typed(given, "body", str, ""), **arguments)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise StartEntryError(f"no request can be made of it: {error}") from error


def _typed(given: dict[str, Any], name: str, kind: Any, default: Any) -> Any:
    value = given.get(name, default)
    wrong = not isinstance(value, kind) or (kind is int and isinstance(value, bool))
    if name in given and wrong:
        wanted = getattr(kind, "__name__", str(kind))
        raise StartEntryError(f'"{name}" must be of type {wanted}, not {value!r}')
    return value


def _method(spider: Spider, given: dict[str, Any], name: str) -> Callable[..., Any] | None:
    wanted = _typed(given, name, str, "")
    if not wanted:
        return None
    found = getattr(spider, wanted, None)
    if not inspect.ismethod(found):
        raise StartEntryError(f'"{name}": the spider {spider.name} has no method {wanted!r}')
    return found


def _form(fields: dict[str, Any]) -> dict[str, str | list[str]]:
    return {
        name: [_form_text(one) for one in value] if isinstance(value, list) else _form_text(value)
        for name, value in fields.items()
    }


def _form_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def _known() -> str:
    return ", ".join(sorted(FIELDS))
