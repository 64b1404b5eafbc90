"""Metrics for Prometheus and OpenTelemetry: what they are called, and where they come from."""
