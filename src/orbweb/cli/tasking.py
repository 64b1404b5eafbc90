"""The commands on tasks, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson, RunId, Set, Store

tasks = typer.Typer(
    help="Tasks of a TaskSpider: those that wait in its list.", no_args_is_help=True
)

Key = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The spider's name, or its task_key if it has one."),
]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.add_typer(tasks, name="tasks")


@tasks.command()
def push(
    job: Key,
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Lines of JSON, a task each; - is stdin.")
    ],
    change: Set = None,
    store_url: Store = None,
) -> None:
    """Let tasks wait in the list: all of a file, or none when a line is no JSON.

    Example: orbweb tasks push Shop tasks.jsonl
    """
    from orbweb.cli import tasks as act
    from orbweb.cli.options import project_settings

    act.push(project_settings(change, store_url), job, file)


@tasks.command("list")
def list_(
    job: Key,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Show this many at most.")
    ] = 20,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """The tasks that are taken next, as lines of JSON.

    Example: orbweb tasks list Shop --limit 5
    """
    from orbweb.cli import tasks as act
    from orbweb.cli.options import project_settings

    act.show_first(project_settings(change, store_url), job, limit, as_json=as_json)


@tasks.command()
def count(
    job: Key,
    run_id: RunId = None,
    change: Set = None,
    store_url: Store = None,
    as_json: AsJson = False,
) -> None:
    """How many tasks wait in the list, are worked on, are done and have failed.

    Example: orbweb tasks count Shop
    """
    from orbweb.cli import tasks as act
    from orbweb.cli.options import project_settings

    act.count(project_settings(change, store_url), job, run_id, as_json=as_json)
