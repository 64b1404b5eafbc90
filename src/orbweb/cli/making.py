"""The commands that write files to begin with, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from orbweb.cli.options import AsJson
from orbweb.errors import ConfigError

DEMO = "http://127.0.0.1:7273/"
"""Where `python -m orbweb.testing.site --port 7273` serves the demo shop."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the folder and the spider.")]
Batch = Annotated[bool, typer.Option("--batch", help="A BatchSpider, over a table in SQLite.")]
Task = Annotated[bool, typer.Option("--task", help="A TaskSpider.")]


def add_to(app: typer.Typer) -> None:
    """Put the commands into the program."""
    app.command()(new)
    app.command("startproject", hidden=True)(new)
    app.command()(genspider)
    app.command()(genitem)
    app.command("create", hidden=True)(create)
    app.command("list")(list_)


def new(name: Name, batch: Batch = False, task: Task = False) -> None:
    """Make a folder with a spider that runs at once against the built-in demo site, and a test.

    Example: orbweb new shop
    """
    from orbweb.cli.new import new_project

    new_project(name, batch=batch, task=task)


def genspider(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the file and the class.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where the crawl begins.")],
) -> None:
    """Write a short spider that runs as it stands, and print it. Nothing is overwritten.

    Example: orbweb genspider news https://news.example
    """
    from orbweb.cli.genspider import generate

    generate(name, url)


def genitem(
    table: Annotated[
        str, typer.Option("--table", metavar="T", help="The table; schema.table is possible.")
    ],
    url: Annotated[
        str | None,
        typer.Option("--from-sql", metavar="URL", help="Its database, default SQL_URL."),
    ] = None,
    class_name: Annotated[
        str | None, typer.Option("--name", metavar="CLASS", help="Default: by the table.")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Write an UpdateItem.")] = False,
) -> None:
    """Write an Item class with the columns of a table, to stdout.

    Example: orbweb genitem --from-sql sqlite:///shop.db --table products
    """
    from orbweb.cli.genitem import print_item

    print_item(url, table, class_name, update=update)


def create(
    project: Annotated[
        str | None, typer.Option("-p", metavar="NAME", help="A project: orbweb new NAME.")
    ] = None,
    spider: Annotated[
        str | None, typer.Option("-s", metavar="NAME", help="A spider: orbweb genspider NAME URL.")
    ] = None,
    item: Annotated[bool, typer.Option("-i", help="An item: orbweb genitem --table T.")] = False,
    table: Annotated[str | None, typer.Option("--table", metavar="T", help="With -i.")] = None,
    url: Annotated[
        str, typer.Argument(metavar="URL", help="With -s; default: the demo shop.")
    ] = DEMO,
) -> None:
    """NetSpy's and feapder's name for new, genspider and genitem.

    Example: orbweb create -s news https://news.example
    """
    if (project is not None) + (spider is not None) + item != 1:
        raise ConfigError("say what to create: -p NAME, -s NAME or -i --table T")
    if project is not None:
        new(project)
    elif spider is not None:
        genspider(spider, url)
    elif table is None:
        raise ConfigError("-i goes with --table T: the table whose columns the item has")
    else:
        genitem(table)


def list_(as_json: AsJson = False) -> None:
    """The spiders in the files of this directory and of spiders/. None of them is executed.

    Example: orbweb list
    """
    from orbweb.cli.found import list_spiders

    list_spiders(as_json=as_json)
