"""From a Kafka topic or a Valkey stream into a database, each item once."""

import orbweb.pipelines.sql_tables  # noqa: F401 - says what to install where SQLAlchemy is missing
