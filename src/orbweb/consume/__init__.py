"""From a Kafka topic or a Valkey stream into a database, each item once."""

import orbweb.sql.databases  # noqa: F401 - says what to install where SQLAlchemy is missing
