"""From a Kafka topic or a Valkey stream into a database, each item once."""
