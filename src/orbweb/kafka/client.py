"""The Kafka client: how producer and consumer are configured, and which errors pass."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from orbweb.errors import ConfigError
from orbweb.log import event, mask_secrets

try:
    import confluent_kafka
except ImportError as error:
    raise ConfigError("Kafka needs its client: pip install 'orbweb[kafka]'") from error

__all__ = ["client_options", "confluent_kafka", "option_pairs"]


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
    servers: Iterable[str], extra: Mapping[str, Any], logger: logging.Logger
) -> dict[str, Any]:
    """What every client is told: the brokers, the user's options, and where errors go."""
    brokers = ",".join(servers)
    if not brokers:
        raise ConfigError("KAFKA_BOOTSTRAP_SERVERS is empty: name a broker, such as localhost:9092")

    def complain(error: confluent_kafka.KafkaError) -> None:
        event(logger, "kafka_trouble", level=logging.WARNING, code=error.name(), error=error.str())

    return {
        "bootstrap.servers": brokers,
        "client.id": "orbweb",
        "error_cb": complain,
        "logger": logger,
        **extra,
    }
