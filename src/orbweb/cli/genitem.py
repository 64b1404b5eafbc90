"""What `orbweb genitem` does: it writes an Item class for a table of a database."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from orbweb.cli.options import project_settings
from orbweb.errors import ConfigError
from orbweb.model.item import Item, UpdateItem
from orbweb.sql.databases import open_engine, reason_of, shown_url

TAKEN = frozenset(name for kind in (Item, UpdateItem) for name in dir(kind) if name[:1] != "_")
"""What an Item has itself, so that no field can have that name."""

KNOWN = "bool", "int", "float", "str", "bytes", "Decimal", "date", "datetime", "time", "timedelta"


@dataclass(frozen=True, slots=True)
class Table:
    """What a database says of a table."""

    name: str
    place: str
    columns: tuple[Any, ...]
    given: frozenset[str]
    """Columns that the database fills by itself."""
    key: tuple[str, ...]
    """The columns that tell two rows apart, as an item can know them; empty when there are none."""


def print_item(url: str | None, table: str, class_name: str | None, *, update: bool) -> None:
    """Print the class. Raises `ConfigError` when there is no such table or database."""
    url = url or project_settings(None, None)["SQL_URL"]
    if not url:
        raise ConfigError("say where the table is: --from-sql URL, or the setting SQL_URL")
    print(item_source(read_table(url, table), class_name, update=update), end="")


def read_table(url: str, name: str) -> Table:
    """Look a table up; `schema.table` names one of another schema."""
    engine = open_engine(url)
    schema, _, short = name.rpartition(".")
    try:
        looked = sa.inspect(engine)
        columns = looked.get_columns(short, schema=schema or None)
        primary = looked.get_pk_constraint(short, schema=schema or None)["constrained_columns"]
        indexes = looked.get_indexes(short, schema=schema or None, include_auto_indexes=True)
        unique: list[Any] = [each["column_names"] for each in indexes if each["unique"]]
    except exc.NoSuchTableError:
        names = ", ".join(sorted(sa.inspect(engine).get_table_names())) or "none"
        raise ConfigError(
            f"there is no table {name} in {shown_url(engine)}; tables there: {names}"
        ) from None
    except exc.SQLAlchemyError as error:
        raise ConfigError(f"{shown_url(engine)} cannot be read: {reason_of(error)}") from error
    finally:
        engine.dispose()
    given = frozenset(each["name"] for each in columns if _is_given(each, primary))
    keys = [tuple(each) for each in [primary, *unique] if each and None not in each]
    key = next((each for each in keys if not given.intersection(each)), ())
    return Table(name, shown_url(engine), tuple(columns), given, key)


def item_source(table: Table, class_name: str | None, *, update: bool) -> str:
    """The module with the class."""
    kind = "UpdateItem" if update else "Item"
    name = class_name or f"{camel(table.name.rpartition('.')[2])}Item"
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ConfigError(f"{name!r} is no name of a class")
    fields = list(_fields(table))
    lines = [
        f'"""Rows of the table {table.name} in {table.place}; written by orbweb genitem."""',
        "",
        "from __future__ import annotations",
        "",
        *_imports(fields),
        "import orbweb as mw",
        "",
        "",
        f"class {name}(mw.{kind}):",
        f'    __table_name__ = "{table.name}"',
    ]
    if table.key:
        lines.append(f"    __unique_key__ = {_tuple(table.key)}")
    else:
        lines.append("    # The table has no key that an item can know: name the fields that tell")
        lines.append("    # two items apart in __unique_key__, and repetitions are left out.")
    lines += ["", *fields]
    return "\n".join(lines) + "\n"


def camel(name: str) -> str:
    """`shop_item` and `shop-item` as `ShopItem`."""
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    return "".join(word[0].upper() + word[1:] for word in words)


def _fields(table: Table) -> Iterator[str]:
    for column in table.columns:
        name, sql = column["name"], str(column["type"])
        if name[:1] == "_":
            continue
        if name in table.given:
            yield f"    # {name}: the database gives it"
        elif name in TAKEN:
            yield f"    # {name}: an Item has that name itself; yield a dict to fill this column"
        elif not name.isidentifier() or keyword.iskeyword(name):
            yield f"    # {name}: fill it with item[{name!r}] = …"
        else:
            wanted = _python_type(column["type"])
            if column["nullable"] and wanted != "Any":
                wanted += " | None"
            comment = " ".join(str(column.get("comment") or "").split())
            yield f"    {name}: {wanted}  # {sql}{f': {comment}' if comment else ''}"


def _python_type(kind: Any) -> str:
    try:
        name = str(kind.python_type.__name__)
    except NotImplementedError:
        return "Any"
    return name if name in KNOWN else "Any"


def _imports(fields: list[str]) -> list[str]:
    """What the annotations name."""
    annotated = (line.split("  #")[0] for line in fields if not line.lstrip().startswith("#"))
    kinds = {line.split(": ", 1)[1].removesuffix(" | None") for line in annotated}
    times = sorted({"date", "datetime", "time", "timedelta"} & kinds)
    lines = [f"from datetime import {', '.join(times)}"] if times else []
    if "Decimal" in kinds:
        lines.append("from decimal import Decimal")
    if "Any" in kinds:
        lines.append("from typing import Any")
    return [*lines, ""] if lines else []


def _is_given(column: Any, primary: list[str]) -> bool:
    """Whether the database counts this column up, or computes it."""
    if column.get("computed") or column.get("identity") or column.get("autoincrement") is True:
        return True
    counted = str(column.get("default") or "").startswith("nextval(")
    only = primary == [column["name"]] and str(column["type"]).upper() == "INTEGER"
    return counted or (only and column.get("default") is None and _is_rowid(column))


def _is_rowid(column: Any) -> bool:
    """SQLite fills an `INTEGER PRIMARY KEY`, and says so only by this."""
    return column.get("primary_key") == 1 and "autoincrement" not in column


def _tuple(names: tuple[str, ...]) -> str:
    shown = ", ".join(f'"{name}"' for name in names)
    return f"({shown},)" if len(names) == 1 else f"({shown})"
