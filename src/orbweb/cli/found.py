"""The spiders of a directory, found by reading its files; nothing of them is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orbweb.cli import show

KINDS = frozenset({"AirSpider", "BatchSpider", "Spider", "TaskSpider"})
FOLDERS = (".", "spiders")
"""Where spiders are looked for, as seen from the working directory."""


@dataclass(frozen=True, slots=True)
class FoundSpider:
    """A class that is a spider by the names of its bases."""

    name: str
    """Its `name`, or that of the class: what the commands call its job."""
    class_name: str
    kind: str
    file: Path
    alone: bool
    """It is the only spider of its file."""

    @property
    def target(self) -> str:
        """How `orbweb run` names it."""
        return str(self.file) if self.alone else f"{self.file}:{self.class_name}"


def list_spiders(*, as_json: bool) -> None:
    """Print the spiders of the working directory."""
    spiders, broken = find_spiders(Path())
    if as_json:
        show.as_json(
            [
                {
                    "name": one.name,
                    "class": one.class_name,
                    "kind": one.kind,
                    "file": str(one.file),
                    "target": one.target,
                }
                for one in spiders
            ]
        )
    elif spiders:
        show.as_table(
            ("SPIDER", "KIND", "FILE", "RUN IT"),
            [(one.name, one.kind, str(one.file), f"orbweb run {one.target}") for one in spiders],
        )
    else:
        print("no spider in *.py and spiders/*.py here")
        show.note("make one: orbweb genspider NAME URL")
    for line in broken:
        show.note(f"not read: {line}")


def find_spiders(directory: Path) -> tuple[list[FoundSpider], list[str]]:
    """The spiders by file, and the files that are no Python, each with the error."""
    trees: dict[Path, ast.Module] = {}
    broken = []
    for folder in FOLDERS:
        for file in sorted((directory / folder).glob("*.py")):
            try:
                trees[file] = ast.parse(file.read_bytes())
            except (SyntaxError, ValueError, OSError) as error:
                broken.append(f"{file}: {error}")
    bases = {name: each for tree in trees.values() for name, each in _classes(tree)}
    found = []
    for file, tree in trees.items():
        own = [(node, _kind(node.name, bases)) for _, node in _classes(tree)]
        spiders = [(node, kind) for node, kind in own if kind and not node.name.startswith("_")]
        for node, kind in spiders:
            name = _attribute(node, "name") or node.name
            found.append(FoundSpider(name, node.name, kind, file, alone=len(spiders) == 1))
    return found, broken


def find_named(name: str, directory: Path) -> str | None:
    """How `orbweb run` names the spider of this name; None when there is none, or several."""
    for file in (Path("spiders", f"{name}.py"), Path(f"{name}.py")):
        if (directory / file).is_file():
            return str(file)
    spiders, _ = find_spiders(directory)
    targets = {one.target for one in spiders if name in (one.name, one.class_name)}
    return targets.pop() if len(targets) == 1 else None


def _classes(tree: ast.Module) -> Iterator[tuple[str, ast.ClassDef]]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, node


def _kind(name: str, known: dict[str, ast.ClassDef], depth: int = 0) -> str:
    """Of which of our classes a class is made; empty for none."""
    node = known.get(name)
    if node is None or depth > len(known):
        return ""
    for base in node.bases:
        last = _last_name(base)
        if last in KINDS and (last not in known or isinstance(_plain(base), ast.Attribute)):
            return last
        if last and (kind := _kind(last, known, depth + 1)):
            return kind
    return ""


def _plain(base: ast.expr) -> ast.expr:
    """`Spider[int]` is `Spider`."""
    return base.value if isinstance(base, ast.Subscript) else base


def _last_name(base: ast.expr) -> str:
    base = _plain(base)
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""


def _attribute(node: ast.ClassDef, name: str) -> str:
    """The text that a class attribute is set to; empty when that is not to be read off."""
    for each in node.body:
        targets = each.targets if isinstance(each, ast.Assign) else []
        if isinstance(each, ast.AnnAssign):
            targets = [each.target]
        value = getattr(each, "value", None)
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name:
                text = value.value if isinstance(value, ast.Constant) else ""
                return text if isinstance(text, str) else ""
    return ""
