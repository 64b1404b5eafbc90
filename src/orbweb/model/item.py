"""Items: what a callback yields that is not a request, and the rows that pipelines receive."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from hashlib import blake2b, md5
from types import NoneType
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from orbweb.errors import ItemError, UnserialisableError
from orbweb.model.values import pack, to_bytes

KEY_FIELD = "_key"
"""The field of a row that holds its key."""

_ATOMS = frozenset(
    {
        NoneType,
        bool,
        int,
        float,
        str,
        bytes,
        Decimal,
        UUID,
        datetime,
        date,
        time,
        timedelta,
    }
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MAX_DEPTH = 64


class Item:
    """A row for a table. Every attribute that does not begin with `_` is a field.

    The table is `__table_name__`, else the class name in snake case without a final `_item`.
    `__unique_key__` names the fields that tell two rows apart; `__pipelines__` the pipelines that
    get this item (None = all). Each can be set for one item: `item.table_name = "news_2026"`.
    """

    __table_name__: ClassVar[str | None] = None
    __unique_key__: ClassVar[str | Iterable[str] | None] = None
    __pipelines__: ClassVar[str | Iterable[str] | None] = None

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self, name, value)

    @property
    def table_name(self) -> str:
        """The table that the row goes to."""
        return self.__dict__.get("_table_name") or table_of(type(self))

    @table_name.setter
    def table_name(self, value: str) -> None:
        self.__dict__["_table_name"] = value

    @property
    def pipelines(self) -> tuple[str, ...] | None:
        """The pipelines that get this item; None means all."""
        chosen = self.__dict__.get("_pipelines", self.__pipelines__)
        return None if chosen is None else _names(chosen)

    @pipelines.setter
    def pipelines(self, value: str | Iterable[str] | None) -> None:
        self.__dict__["_pipelines"] = value

    @property
    def unique_key(self) -> tuple[str, ...]:
        """The fields that tell two rows of the table apart; empty when none are named."""
        return _names(self.__dict__.get("_unique_key", self.__unique_key__))

    @unique_key.setter
    def unique_key(self, value: str | Iterable[str] | None) -> None:
        self.__dict__["_unique_key"] = value

    @property
    def fingerprint(self) -> str:
        """MD5 over the table and the unique fields, or over all that are not empty."""
        fields = self.to_dict()
        keys = self.unique_key or [name for name, value in fields.items() if _filled(value)]
        return self._digest(fields, keys)

    def _digest(self, fields: dict[str, Any], keys: Iterable[str]) -> str:
        values = {name: fields.get(name) for name in sorted(keys)}
        return md5(_packed(self, (self.table_name, values)), usedforsecurity=False).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return the fields. The dict is new, the values in it are shared."""
        return {name: value for name, value in self.__dict__.items() if name[:1] != "_"}

    def pre_to_db(self) -> None:
        """Called on a copy of the item before it is stored; change its fields here."""

    def __getitem__(self, name: str) -> Any:
        try:
            return self.to_dict()[name]
        except KeyError:
            raise KeyError(f"{type(self).__name__} has no field {name!r}") from None

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.to_dict()!r}>"


class UpdateItem(Item):
    """Changes a row that exists: the one whose `update_key` fields are equal.

    `__update_key__` names them and falls back to `__unique_key__`.
    """

    __update_key__: ClassVar[str | Iterable[str] | None] = None

    @property
    def update_key(self) -> tuple[str, ...]:
        """The fields by which the row is found."""
        return _names(self.__dict__.get("_update_key", self.__update_key__)) or self.unique_key

    @update_key.setter
    def update_key(self, value: str | Iterable[str] | None) -> None:
        self.__dict__["_update_key"] = value

    @property
    def fingerprint(self) -> str:
        """MD5 over the table and all fields: two different changes are never the same."""
        fields = self.to_dict()
        return self._digest(fields, fields)


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """A row on its way to the pipelines. Nothing in it is shared with the spider's objects."""

    key: str
    """The row's identity; in the row too, as `_key`."""
    table: str
    row: dict[str, Any]
    update_keys: tuple[str, ...] | None
    """Fields by which the row to change is found; None = insert."""
    pipelines: tuple[str, ...] | None
    """Dotted paths of the pipelines that get it; None = all."""
    unique: tuple[str, ...] = ()
    """The fields that tell two rows of the table apart; empty when none are named."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Which attempt at which page items come from."""

    run: str
    """The epoch of the run: another incarnation of it is another run."""
    request_id: str
    attempt: str
    """The fence token of the lease: two attempts at one page never have the same."""
    claimed_at_ms: int = 0
    """The store's wall clock when the request was claimed: its data are no older than that."""
    part: int = 0
    """A page with very many items comes in parts, numbered from 0."""
    complete: bool = True
    """False when the page failed half-way, so that a later attempt may have more."""


def is_item(value: Any) -> bool:
    """Whether a callback may yield this as an item."""
    return isinstance(value, dict | Item) or _adapter(value) is not None


def item_record(
    item: Any, *, run: str, request_id: str, position: int, default_table: str
) -> ItemRecord:
    """Return the row for a dict, `Item`, dataclass, attrs or pydantic object.

    Its key is a pure function of `run`, `request_id` and `position` (which item of the page it
    is), or, with `__unique_key__`, of the table and these fields' values: a page that is parsed
    again gives the same keys. Updates always go by their place, since two of one row are no
    duplicates. Raises `ItemError` that names the item's type and the field.
    """
    unique: tuple[str, ...]
    pipelines: tuple[str, ...] | None
    if isinstance(item, Item):
        item = _prepared(item)
        table = item.table_name
        unique, pipelines, fields = item.unique_key, item.pipelines, item.to_dict()
    elif isinstance(item, dict):
        table, unique, pipelines, fields = default_table, (), None, item
    else:
        table, unique, pipelines, fields = _adapted(item)
    update_keys = _update_keys(item)
    _check_table(item, table)
    row = _row(item, fields)
    for name in (*unique, *(update_keys or ())):
        if name not in row:
            raise ItemError(f"{_kind(item)}: the key field {name!r} is missing")
    if unique and update_keys is None:
        key = _digest(item, _unique_identity(table, row, unique))
    else:
        key = _digest(item, ("place", run, request_id, position))
    row[KEY_FIELD] = key
    return ItemRecord(key, table, row, update_keys, pipelines, unique)


def key_of_unique(table: str, row: Mapping[str, Any], unique: Iterable[str]) -> str:
    """The key of the item of a table that has these values in the fields of its unique key."""
    return _digest(row, _unique_identity(table, row, unique))


def table_of(kind: type) -> str:
    """Return the table of a class: `__table_name__`, else `NewsArticleItem` → `news_article`."""
    named = getattr(kind, "__table_name__", None)
    if named:
        return str(named)
    snake = _HUMP.sub("_", kind.__name__).lower()
    return snake.removesuffix("_item") or snake


def _prepared(item: Item) -> Item:
    """Return a copy on which the hook has run, so that the spider's own object stays as it is."""
    prepared = object.__new__(type(item))
    prepared.__dict__.update(
        {name: _copied(item, value, name, 0) for name, value in item.__dict__.items()}
    )
    prepared.pre_to_db()
    return prepared


def _adapted(item: Any) -> tuple[str, tuple[str, ...], tuple[str, ...] | None, dict[str, Any]]:
    adapter = _adapter(item)
    if adapter is None:
        raise ItemError(f"{_kind(item)} is not an item: yield a dict, Item, dataclass or model")
    kind = type(item)
    pipelines = getattr(kind, "__pipelines__", None)
    return (
        table_of(kind),
        _names(getattr(kind, "__unique_key__", None)),
        None if pipelines is None else _names(pipelines),
        dict(adapter),
    )


def _adapter(value: Any) -> Mapping[str, Any] | None:
    """Return a view on a dataclass, attrs, pydantic or scrapy object; None for anything else."""
    if type(value).__module__ == "builtins":
        return None
    from itemadapter.adapter import ItemAdapter  # imports pydantic and scrapy where they are

    return ItemAdapter(value) if ItemAdapter.is_item(value) else None


def _update_keys(item: Any) -> tuple[str, ...] | None:
    if isinstance(item, UpdateItem):
        keys = item.update_key
        if not keys:
            raise ItemError(f"{_kind(item)}: name the fields that find the row in __update_key__")
        return keys
    named = getattr(type(item), "__update_key__", None)
    return None if named is None else _names(named)


def _check_table(item: Any, table: Any) -> None:
    if (
        not isinstance(table, str)
        or not table
        or not _is_whole(table)
        or any(mark in table for mark in "/\\\0")
    ):
        raise ItemError(f"{_kind(item)}: {table!r} is not a name for a table")


def _is_whole(text: str) -> bool:
    """Whether it can be UTF-8; names must, since all that is counted and kept goes by them."""
    return text.isascii() or not any("\ud800" <= mark <= "\udfff" for mark in text)


def _row(item: Any, fields: dict[Any, Any]) -> dict[str, Any]:
    row = {}
    for name, value in fields.items():
        if not isinstance(name, str):
            raise ItemError(f"{_kind(item)}: the field name {name!r} is not text")
        if not _is_whole(name):
            raise ItemError(f"{_kind(item)}: the field name {name!r} has half a surrogate pair")
        row[name] = value if type(value) in _ATOMS else _copied(item, value, name, 0)
    if KEY_FIELD in row:
        raise ItemError(f"{_kind(item)}: the field {KEY_FIELD!r} is Orbweb's own, use another name")
    return row


def _copied(item: Any, value: Any, field: str, depth: int) -> Any:
    """Return a copy that shares nothing that can change; nested items become dicts."""
    if type(value) in _ATOMS:
        return value
    if depth > _MAX_DEPTH:
        raise ItemError(f"{_kind(item)}: field {field!r} is nested too deep, or holds itself")
    depth += 1
    if isinstance(value, Item):
        value = value.to_dict()
    if type(value) is dict:
        return {key: _copied(item, one, field, depth) for key, one in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_copied(item, one, field, depth) for one in value)
    adapter = _adapter(value)
    if adapter is not None:
        return _copied(item, dict(adapter), field, depth)
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise ItemError(
            f"{_kind(item)}: field {field!r} of type {_kind(value)} cannot be copied: {error}"
        ) from error


def _unique_identity(table: str, row: Mapping[str, Any], unique: Iterable[str]) -> tuple[Any, ...]:
    return ("unique", table, *((name, row[name]) for name in unique))


def _digest(item: Any, identity: tuple[Any, ...]) -> str:
    return blake2b(_packed(item, identity), digest_size=12).hexdigest()


def _packed(item: Any, identity: tuple[Any, ...]) -> bytes:
    try:
        return to_bytes(pack(identity, "key"), "key")
    except UnserialisableError as error:
        raise ItemError(f"{_kind(item)}: no key can be made of its fields: {error}") from error


def _names(given: str | Iterable[str] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)


def _filled(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}


def _kind(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
