"""The Kafka client: how producer and consumer are configured, and which errors pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from orbweb.errors import ConfigError
from orbweb.log import event, mask_secrets

try:
    import confluent_kafka
except ImportError as error:
    raise ConfigError("Kafka needs its client: pip install 'orbweb[kafka]'") from error

LOG_CRITICAL = 2
"""What librdkafka logs by itself, as a level of syslog: all else comes as an error, too."""

QUIET_SECONDS = 30.0

__all__ = ["Troubles", "client_options", "confluent_kafka", "option_pairs"]


def option_pairs(texts: Iterable[str], where: str) -> dict[str, str]:
    """`NAME=VALUE` texts as options of librdkafka. Raises `ConfigError` that hides the value."""
    options = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise ConfigError(f"{where}: NAME=VALUE is wanted, not {mask_secrets(text)!r}")
        options[name.strip()] = value
    return options


def client_options(
    servers: Iterable[str],
    extra: Mapping[str, Any],
    fixed: Mapping[str, Any],
    logger: logging.Logger,
) -> dict[str, Any]:
    """What a client is told: the brokers, the user's options, and where troubles go.

    Raises `ConfigError` without a broker, and when the user changes what is `fixed`.
    """
    for name in sorted(fixed.keys() & extra.keys()):
        raise ConfigError(f"KAFKA_OPTIONS: {name} cannot be changed, storing once rests on it")
    brokers = ",".join(servers)
    if not brokers:
        raise ConfigError("KAFKA_BOOTSTRAP_SERVERS is empty: name a broker, such as localhost:9092")
    return {
        "bootstrap.servers": brokers,
        "client.id": "orbweb",
        "error_cb": Troubles(logger),
        "logger": logger,
        "log_level": LOG_CRITICAL,
        **extra,
        **fixed,
    }


class Troubles:
    """Says what a client complains of, each kind once in a while: it complains at every try."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._quiet_until: dict[int, float] = {}
        self.fatal = ""
        """Why the client is of no use any more; empty while it is."""

    def __call__(self, error: confluent_kafka.KafkaError) -> None:
        if error.fatal() or error.code() == confluent_kafka.KafkaError._FATAL:
            self.fatal = error.str()
        code, now = error.code(), time.monotonic()
        if now < self._quiet_until.get(code, 0.0):
            return
        self._quiet_until[code] = now + QUIET_SECONDS
        event(
            self._logger,
            "kafka_trouble",
            level=logging.WARNING,
            code=error.name(),
            error=error.str(),
        )
