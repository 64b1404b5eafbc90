"""The commands on metrics, and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbweb.cli.options import AsJson, Set, Store

metrics = typer.Typer(help="Metrics for Prometheus and Grafana.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(metrics, name="metrics")


@metrics.command("show")
def metrics_show(change: Set = None, store_url: Store = None, as_json: AsJson = False) -> None:
    """Print the metrics of the fleet, as Prometheus reads them.

    Example: orbweb metrics show --store redis://store:6379/0
    """
    from orbweb.cli.metrics import show_metrics
    from orbweb.cli.options import project_settings

    show_metrics(project_settings(change, store_url), as_json=as_json)


@metrics.command("serve")
def metrics_serve(
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65535, help="0: a free one.")
    ] = 9464,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="0.0.0.0: all of this machine.")
    ] = "127.0.0.1",
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Serve the metrics of the fleet at /metrics until it is stopped: one target for all nodes.

    Example: orbweb metrics serve --store redis://store:6379/0 --host 0.0.0.0
    """
    from orbweb.cli.metrics import serve
    from orbweb.cli.options import project_settings

    serve(project_settings(change, store_url), host, port)


@metrics.command("targets")
def metrics_targets(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write it there, for file_sd.")
    ] = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The nodes with a scrape target of their own (METRICS_PORT).

    Example: orbweb metrics targets --out /etc/prometheus/targets
    """
    from orbweb.cli.metrics import targets
    from orbweb.cli.options import project_settings

    targets(project_settings(change, store_url), out, as_json=as_json)


@metrics.command("grafana")
def metrics_grafana(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")],
    as_json: AsJson = False,
) -> None:
    """Write the three Grafana dashboards: fleet, one spider, data quality.

    Example: orbweb metrics grafana --out dashboards
    """
    from orbweb.cli.metrics import write_shipped

    write_shipped("grafana", out, as_json=as_json)


@metrics.command("rules")
def metrics_rules(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where to write them.")],
    as_json: AsJson = False,
) -> None:
    """Write the alert rules for Prometheus.

    Example: orbweb metrics rules --out /etc/prometheus/rules
    """
    from orbweb.cli.metrics import write_shipped

    write_shipped("rules", out, as_json=as_json)
