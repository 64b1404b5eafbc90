"""What acts on hosts share: which host is meant, who does it, for how long, and how to undo it."""

from __future__ import annotations

import getpass
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from orbweb.cli import show
from orbweb.errors import ConfigError
from orbweb.frontier.hosts import Limit, Pause
from orbweb.frontier.operator import Author
from orbweb.log import mask_secrets
from orbweb.model.rate import parse_rate, parse_span, rate_text, span_text
from orbweb.model.url import BadUrlError, host_of


@dataclass(frozen=True, slots=True)
class Asked:
    """The options that all acts have, as they were typed."""

    span: str | None = None
    reason: str = ""
    by: str | None = None
    changes: tuple[str, ...] = ()
    store: str | None = None

    @property
    def for_ms(self) -> int:
        """0 without `--for`."""
        return 0 if self.span is None else read_span(self.span)

    @property
    def author(self) -> Author:
        return Author(self.by or user_name(), self.reason)

    @property
    def same_store(self) -> list[str]:
        """The options that make another command mean the same store."""
        more = [word for change in self.changes for word in ("-s", change)]
        return more if self.store is None else [*more, "--store", self.store]


def say_undo(asked: Asked, *commands: Sequence[str]) -> None:
    """Print commands that can be pasted; options with a password are left out, which is said."""
    more, secret = asked.same_store, ""
    if mask_secrets(shlex.join(more)) != shlex.join(more):
        more, secret = [], "  # with the same -s and --store"
    texts = (shlex.join(["orbweb", *words, *more]) for words in commands)
    show.note(f"undo: {' && '.join(texts)}{secret}")


def user_name() -> str:
    """Who types; `unknown` where the system has no name for that."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def read_host(text: str) -> str:
    """The host that politeness belongs to, from a URL or from host[:port]."""
    bare = text.strip()
    scheme = "https" if bare.partition("/")[0].endswith(":443") else "http"
    try:
        return host_of(bare if "://" in bare else f"{scheme}://{bare}")
    except BadUrlError as error:
        raise ConfigError(
            f"{mask_secrets(text)!r} is no host ({error.why}); right would be shop.example, "
            "shop.example:8080 or a URL"
        ) from None


def unknown(what: str, name: str, known: Iterable[str]) -> None:
    """Note that nobody knows what an act is about, and what may have been meant."""
    show.note(f"the store knows no {what}, so it holds only if one comes{near(name, known)}")


def near(name: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence; a name's beginning goes first."""
    names = sorted(known)
    close = [each for each in names if name and each.startswith(name)]
    close += [each for each in get_close_matches(name, names) if each not in close]
    return f"; did you mean {' or '.join(close[:3])}?" if close else ""


def read_rate(text: str) -> int:
    """A rate as its gap in ms; `ConfigError` if it is none."""
    try:
        return parse_rate(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def read_span(text: str) -> int:
    """The time span of `--for` in ms; `ConfigError` if it is none."""
    try:
        return parse_span(text)
    except ValueError as error:
        raise ConfigError(f"--for {error}") from None


def ends(until_ms: int, at_ms: int) -> str:
    """`until 2026-12-01 15:30:00 (30 m 0 s)`."""
    left = show.duration((until_ms - at_ms) / 1000)
    return f"until {show.moment(until_ms)} ({left})"


def lasting(until_ms: int, at_ms: int) -> list[str]:
    """The `--for` of what ends then, typed now."""
    return ["--for", span_text(until_ms - at_ms)] if until_ms else []


def because(why: str) -> list[str]:
    """The `--reason` of an act."""
    return ["--reason", why] if why else []


def limit_words(host: str, limit: Limit | None, at_ms: int) -> list[str]:
    """The command that sets this limit."""
    if limit is None:
        return ["limit", host, "off"]
    words = ["limit", host, rate_text(limit.gap_ms)]
    return [*words, *lasting(limit.until_ms, at_ms), *because(limit.why)]


def pause_words(target: Sequence[str], pause: Pause | None, at_ms: int) -> list[str]:
    """The command that sets this pause."""
    if pause is None:
        return ["resume", *target]
    return ["pause", *target, *lasting(pause.until_ms, at_ms), *because(pause.why)]
