"""Log lines: one shape for all, passwords never in them."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from orbweb.errors import ConfigError
from orbweb.log_file import RotatingFile, Rotation

ROOT = "orbweb"
MASK = "***"

SECRET_WORDS = (
    r"(?:passw|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|jaas|key\.pem|"
    r"auth(?!enticate|or(?!i[sz]))|session|sess[_-]?id|signature|credential|cookie|jwt|"
    r"(?<![a-z])(?:sig|sid|pass)(?![a-z]))"
)
"""What a name has in it whose value is a secret, whatever that looks like: for all places that mask
by names. To be read without regard to case."""

_URL_PASSWORD = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://[^\s/?#:@]*):[^\s/?#]*@", re.IGNORECASE
)
_SERVER_PASSWORD = re.compile(
    r"(?P<scheme>\b(?!https?:)[a-z][a-z0-9+.-]*://[^\s/?#:@]*):[^\s\"'<>]*@", re.IGNORECASE
)
"""Of databases and brokers: people do not escape the / ? # in them, and their clients cope."""
_NAMED = re.compile(
    r"(?<![\w.%-])(?P<name>[\w.%-]++)(?P<sign>=\\?[\"']?)"
    r"(?P<value>(?<=[\"'])[^\"'\\]+|[^\s&#\"'<>\\]+)"
)
"""`name=value`, in URLs and elsewhere."""
_CREDENTIALS = re.compile(
    r"(?P<name>\b(?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|digest)\s+)?)"
    r"[^\s\"',;}]+",
    re.IGNORECASE,
)
_HOOK = re.compile(
    r"(?P<place>/bot/v2/hook/|hooks\.slack\.com/services/|/webhook/send\?key=|[?&]access_token=)"
    r"[^\s&\"'<>]+"
)
"""Tokens in the addresses of robots of group chats."""
FLAGS = frozenset({"true", "false", "none", "null", MASK})
"""Values that are no secret, whatever their name."""
_LEVELLED: set[str] = set()
"""Loggers that have a level of their own."""
_SECRET_WORDS = re.compile(SECRET_WORDS, re.IGNORECASE)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether the value of what is called so is masked: of a header, a parameter, a setting, a
    variable, a field of a log line. Only flags, and what is empty, are shown all the same."""
    return _SECRET_WORDS.search(name) is not None


def mask_secrets(text: str) -> str:
    """The text without passwords in URLs, and without the values of what is named like a secret."""
    if "://" in text:
        text = _SERVER_PASSWORD.sub(rf"\g<scheme>:{MASK}@", text)
        text = _URL_PASSWORD.sub(rf"\g<scheme>:{MASK}@", text)
    if "hook" in text or "access_token=" in text:
        text = _HOOK.sub(rf"\g<place>{MASK}", text)
    if "uthorization" in text.lower():
        text = _CREDENTIALS.sub(rf"\g<name>{MASK}", text)
    if "=" in text:
        text = _NAMED.sub(_mask_named, text)
    return text


def _mask_named(found: re.Match[str]) -> str:
    if found["value"].lower() in FLAGS or not is_secret_name(found["name"]):
        return found[0]
    return f"{found['name']}{found['sign']}{MASK}"


def mask_address(address: str) -> str:
    """An address of a server without its password, whatever that is made of, and be it misspelt."""
    place, at, host = address.rpartition("@")
    if at:
        scheme, separator, credentials = place.rpartition("://")
        user, colon, _ = credentials.partition(":")
        address = f"{scheme}{separator}{user}{colon}{MASK if colon else ''}@{host}"
    return mask_secrets(address)


def mask_hook(address: str) -> str:
    """An address of a web hook, of which only scheme and host are no secret; with NAME= in front.

    What looks like no web address may have its secret anywhere: only the scheme is left.
    """
    before, separator, rest = address.partition("://")
    if not separator:
        return MASK if address else address
    scheme = before.rpartition("=")[2].rpartition("+")[2]
    if scheme not in ("http", "https"):
        return f"{before}://{MASK}"
    host = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{before}://{host}/{MASK}"


def writable(text: str) -> str:
    """The text with halves of surrogate pairs as `\\ud800`: pages have them, UTF-8 has not."""
    return text.encode(errors="backslashreplace").decode()


class LineFormatter(logging.Formatter):
    """`2026-11-30 22:31:07 [orbweb.engine] INFO: text`, local time, secrets masked."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s [%(name)s] %(levelname)s: %(message)s", "%Y-%m-%d %H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        return mask_secrets(super().format(record))


class ColourFormatter(LineFormatter):
    """The same with the level and, from warnings on, the text in colour."""

    _COLOURS: ClassVar = {"DEBUG": "2", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}

    def format(self, record: logging.LogRecord) -> str:
        colour = self._COLOURS.get(record.levelname)
        text = super().format(record)
        return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC, ISO 8601), level, logger, text, event and its fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "text": record.getMessage(),
        }
        line.update(getattr(record, "event_fields", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(masked(line), ensure_ascii=False, default=str)


def get_logger(name: str) -> logging.Logger:
    """The logger `orbweb.<name>`; a name that begins with `orbweb` is taken as it is."""
    if name == ROOT or name.startswith(f"{ROOT}."):
        return logging.getLogger(name)
    return logging.getLogger(f"{ROOT}.{name}")


def configure(
    level: str = "INFO",
    file: str | Path | None = None,
    json: bool = False,
    *,
    colour: bool = True,
    rotation: Rotation | None = None,
) -> None:
    """Send the lines of all `orbweb` loggers to stderr, and to `file` if one is given.

    Colour is for terminals only, and not where NO_COLOR is set. May be called again: the last call
    counts. Loggers of other libraries are left alone. Raises `ConfigError` when the file cannot be
    opened.
    """
    root = logging.getLogger(ROOT)
    plain = JsonFormatter() if json else LineFormatter()
    shown = logging.StreamHandler(sys.stderr)
    coloured = colour and not json and sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    shown.setFormatter(ColourFormatter() if coloured else plain)
    handlers: list[logging.Handler] = [shown]
    if file is not None:
        handlers.append(_file_handler(Path(file), rotation or Rotation()))
        handlers[-1].setFormatter(plain)
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
    root.propagate = False


def set_levels(level: str, of_loggers: Mapping[str, str] | None = None) -> None:
    """Let lines of at least this level pass, and of single loggers (by `get_logger`) others.

    A logger that an earlier call named, and this one does not, goes by the level of all again.
    """
    for name in _LEVELLED - {*(of_loggers or {})}:
        get_logger(name).setLevel(logging.NOTSET)
    _LEVELLED.clear()
    for name, its_level in (of_loggers or {}).items():
        get_logger(name).setLevel(its_level)
        _LEVELLED.add(name)
    logging.getLogger(ROOT).setLevel(level)


def event(
    logger: logging.Logger, name: str, /, *, level: int = logging.INFO, **fields: Any
) -> None:
    """One line for one change of state: the event's name, then its fields as `key=value`.

    In JSON lines `event` and each field are keys of their own.
    """
    if not logger.isEnabledFor(level):
        return
    shown: dict[str, Any] = masked(fields)
    words = [name, *(f"{key}={_word(value)}" for key, value in shown.items())]
    logger.log(level, "%s", " ".join(words), extra={"event_fields": {"event": name, **shown}})


def _word(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    if text and not re.search(r"[\s\"=]", text):
        return text
    return json.dumps(text, ensure_ascii=False)


def masked(value: Any) -> Any:
    """The value with every text in it masked, and what stands under a secret's name whole."""
    if isinstance(value, str):
        return mask_secrets(value)
    if isinstance(value, Mapping):
        return {
            str(key): MASK if _hides(part) and is_secret_name(str(key)) else masked(part)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(part) for part in value]
    return value


def _hides(value: Any) -> bool:
    """Whether a value could be a secret: not one that is empty, or a flag."""
    return not (value is None or isinstance(value, bool) or value == "")


def _file_handler(path: Path, rotation: Rotation) -> logging.Handler:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return RotatingFile(path, rotation)
    except OSError as error:
        raise ConfigError(f"the log file {path} cannot be opened: {error}") from error
