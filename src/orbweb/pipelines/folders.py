"""Folders that take whole files: on this machine, or wherever fsspec reaches (S3, GCS, memory)."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, Protocol

from orbweb.errors import ConfigError
from orbweb.pipelines.files import sync_directory


class Folder(Protocol):
    """Files by name. A file is there whole or not at all, whatever dies meanwhile."""

    def write(self, name: str, content: bytes) -> None:
        """Put a file there, in the place of one with this name. Durable when it returns."""

    def read(self, name: str) -> bytes:
        """The content of a file."""

    def names(self) -> list[str]:
        """The names of all files, sorted."""

    def remove(self, name: str) -> None:
        """Remove a file; one that is not there is no error."""


def is_url(place: str) -> bool:
    """Whether a place is named by a URL such as s3://bucket/folder."""
    return "://" in place


def open_folder(place: str) -> Folder:
    """The folder of that path or URL. Raises `ConfigError` when it cannot be had."""
    return RemoteFolder(place) if is_url(place) else LocalFolder(Path(place))


class LocalFolder:
    """See `Folder`. A file is written under a hidden name, synced, and renamed."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()

    def write(self, name: str, content: bytes) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        draft = self._path / f".{name}.{uuid.uuid4().hex}"
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._path / name)
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self._path)

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def names(self) -> list[str]:
        if not self._path.is_dir():
            return []
        return sorted(each.name for each in self._path.iterdir() if each.name[:1] != ".")

    def remove(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)


class RemoteFolder:
    """See `Folder`. Object stores show an object when all of it has arrived."""

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError as error:
            raise ConfigError(
                f"{url} needs fsspec, and for S3 s3fs: pip install 'orbweb[fsspec]' s3fs"
            ) from error
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{url} cannot be opened: {error}") from error

    def write(self, name: str, content: bytes) -> None:
        if self._files.protocol in ("file", ("file", "local")):
            LocalFolder(Path(self._root)).write(name, content)  # fsspec neither syncs nor renames
        else:
            self._files.pipe_file(f"{self._root}/{name}", content)

    def read(self, name: str) -> bytes:
        content: bytes = self._files.cat_file(f"{self._root}/{name}")
        return content

    def names(self) -> list[str]:
        self._files.invalidate_cache()
        try:
            found: list[Any] = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        names = (str(path).rstrip("/").rpartition("/")[2] for path in found)
        return sorted(name for name in names if name[:1] != ".")

    def remove(self, name: str) -> None:
        try:
            self._files.rm_file(f"{self._root}/{name}")
        except FileNotFoundError:
            return
