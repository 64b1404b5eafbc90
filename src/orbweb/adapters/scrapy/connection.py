"""Blocking Redis clients from Scrapy settings, by scrapy-redis's names and rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from redis.backoff import NoBackoff
from redis.retry import Retry
from scrapy.settings import BaseSettings
from scrapy.utils.misc import load_object

from orbweb.adapters.scrapy import defaults
from orbweb.frontier.embedded import EmbeddedStore

SETTINGS_PARAMS_MAP = {
    "REDIS_URL": "url",
    "REDIS_HOST": "host",
    "REDIS_PORT": "port",
    "REDIS_DB": "db",
    "REDIS_ENCODING": "encoding",
    "REDIS_DECODE_RESPONSES": "decode_responses",
}
"""Which argument of the client a setting becomes. Projects may add to it."""


_URL_OPTIONS = ("ssl_cert_reqs", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_ca_path")


def get_redis_from_settings(settings: BaseSettings) -> Any:
    """A client of the project's Redis. `REDIS_URL` wins over host and port. Does not connect yet.

    With `ORBWEB_EMBEDDED_STORE` it is that of the working directory.

    `REDIS_PARAMS` holds further arguments of the client; its `redis_cls` is a class or its path.
    """
    return _client({**defaults.REDIS_PARAMS, **_named(settings)})


def _named(settings: BaseSettings) -> dict[str, Any]:
    """The arguments of the client that the project names."""
    params: dict[str, Any] = settings.getdict("REDIS_PARAMS")
    for name, argument in SETTINGS_PARAMS_MAP.items():
        if value := settings.get(name):
            params[argument] = value
    if settings.getbool("ORBWEB_EMBEDDED_STORE"):
        params["url"] = EmbeddedStore(Path.cwd()).url
    return params


def _client(params: dict[str, Any]) -> Any:
    if isinstance(params.get("redis_cls"), str):
        params["redis_cls"] = load_object(params["redis_cls"])
    return get_redis(**params)


from_settings = get_redis_from_settings


def get_redis(**kwargs: Any) -> Any:
    """A client of class `redis_cls` (default `redis.Redis`), made from `url` if one is given."""
    redis_cls = kwargs.pop("redis_cls", defaults.REDIS_CLS)
    url = kwargs.pop("url", None)
    return redis_cls.from_url(url, **kwargs) if url else redis_cls(**kwargs)


def store_url(settings: BaseSettings) -> str:
    """The project's Redis as a URL, from the same settings as `get_redis_from_settings`."""
    params = _named(settings)
    words = [quote(str(params.get(name) or ""), safe="") for name in ("username", "password")]
    login = ":".join(words) + "@" if any(words) else ""
    if url := params.get("url"):
        return _with_login(str(url), login, params.get("db"))
    database = int(params.get("db") or 0)
    if path := params.get("unix_socket_path"):
        return f"unix://{login}{quote(str(path))}?db={database}"
    scheme = "rediss" if params.get("ssl") else "redis"
    host, port = params.get("host") or "localhost", params.get("port") or 6379
    options = {name: params[name] for name in _URL_OPTIONS if params.get(name)}
    query = f"?{urlencode(options)}" if options and scheme == "rediss" else ""
    return f"{scheme}://{login}{host}:{port}/{database}{query}"


def get_impatient_redis(settings: BaseSettings) -> Any:
    """A client for those who try again themselves: it answers or fails within five seconds."""
    patience = {"socket_timeout": 5, "socket_connect_timeout": 5, "retry": Retry(NoBackoff(), 0)}
    return _client({**defaults.REDIS_PARAMS, **patience, **_named(settings)})


def _with_login(url: str, login: str, database: Any) -> str:
    """The URL; where it names no user, password or database, those of `REDIS_PARAMS`."""
    parts = urlsplit(url)
    if login and "@" not in parts.netloc:
        parts = parts._replace(netloc=login + parts.netloc)
    if database and parts.scheme != "unix" and parts.path in ("", "/"):
        parts = parts._replace(path=f"/{int(database)}")
    return urlunsplit(parts)
