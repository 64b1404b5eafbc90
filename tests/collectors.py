"""A stand-in for an OpenTelemetry collector: takes OTLP over HTTP and keeps what came."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What came, decoded by OpenTelemetry's own messages."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.headers: list[dict[str, str]] = []

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def last_metrics(self) -> dict[str, Any]:
        """The metrics of the last telling, by name."""
        (resource,) = self.metrics[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        """What was told of the node itself."""
        (resource,) = self.metrics[-1].resource_metrics
        return values(resource.resource.attributes)


def values(attributes: Any) -> dict[str, Any]:
    """Attributes as a dict."""
    return {
        each.key: getattr(each.value, str(each.value.WhichOneof("value"))) for each in attributes
    }


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.headers.append({name.lower(): text for name, text in self.headers.items()})
            if self.path == "/v1/metrics":
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
            elif self.path == "/v1/traces":
                collector.traces.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if self.path.startswith("/v1/") else 404)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
