"""Which source of live values an address means."""

from __future__ import annotations

from pathlib import Path

from orbweb.config.address import Address
from orbweb.config.consul import ConsulSource
from orbweb.config.etcd import EtcdSource
from orbweb.config.file import FileSource
from orbweb.config.nacos import NacosSource
from orbweb.config.source import ConfigSource
from orbweb.settings import Settings

FILE = "file:"


def config_sources(settings: Settings, directory: Path) -> list[ConfigSource]:
    """What CONFIG_SOURCE names, if it names something. Raises `ConfigError`."""
    address = settings["CONFIG_SOURCE"]
    return [open_source(address, directory)] if address else []


def open_source(address: str, directory: Path) -> ConfigSource:
    """The source of CONFIG_SOURCE; nothing is asked yet. Call it on the event loop.

    `file:` is followed by a path, from `directory` on when it is relative.
    Raises `ConfigError` for an address that means none.
    """
    if address.startswith(FILE):
        return FileSource(directory / address.removeprefix(FILE).removeprefix("//"))
    found = Address.read(address)
    if found.kind == "etcd":
        return EtcdSource(found)
    return ConsulSource(found) if found.kind == "consul" else NacosSource(found)
