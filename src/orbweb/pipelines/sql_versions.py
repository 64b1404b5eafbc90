"""How new the rows of a database are, so that a late attempt cannot overwrite newer data."""

from __future__ import annotations

import sqlalchemy as sa

from orbweb.sql.databases import ascii_text, first_wins, make_tables

_metadata = sa.MetaData()

VERSIONS = sa.Table(
    "orbweb_versions",
    _metadata,
    sa.Column("row_key", ascii_text(64), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
)
"""The logical time of the newest change of each row that was changed."""


class RowVersions:
    """The table of versions. `is_newest` runs in the caller's transaction."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def prepare(self) -> None:
        """Make the table if it is missing."""
        make_tables(_metadata, self._engine)

    def is_newest(self, connection: sa.Connection, row_key: str, version: int) -> bool:
        """Whether no newer change of the row was applied; if so, this one is the newest now.

        The row of the table is locked until the transaction ends, so changes of one row queue up.
        """
        connection.execute(first_wins(self._engine, VERSIONS), {"row_key": row_key, "version": -1})
        raised = connection.execute(
            sa.update(VERSIONS)
            .where(VERSIONS.c.row_key == row_key, VERSIONS.c.version <= version)
            .values(version=version)
        )
        return raised.rowcount == 1
