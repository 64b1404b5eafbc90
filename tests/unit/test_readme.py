"""The two READMEs say the same, and nothing of what they name is missing."""

from __future__ import annotations

import re
from pathlib import Path

from orbweb.alarms.rules import RULES

ROOT = Path(__file__).parents[2]
ENGLISH, CHINESE = (ROOT / name for name in ("README.md", "README.zh-CN.md"))


def shape(path: Path) -> list[str]:
    """Heading levels, code blocks and table rows, in their order: what both languages share."""
    lines = path.read_text(encoding="utf-8").splitlines()
    marks = [re.match(r"#+ |```\w*|\|", line) for line in lines]
    return [mark.group().strip() for mark in marks if mark]


def test_both_languages_have_the_same_headings_tables_and_code() -> None:
    assert shape(ENGLISH) == shape(CHINESE)


def test_both_languages_show_the_same_code() -> None:
    def code(path: Path) -> list[str]:
        blocks = re.findall(r"```\w+\n(.*?)```", path.read_text(encoding="utf-8"), re.S)
        return [re.sub(r"\s*#.*", "", block) for block in blocks]

    assert code(ENGLISH) == code(CHINESE)


def test_every_linked_file_exists() -> None:
    for path in (ENGLISH, CHINESE):
        for target in re.findall(r"\]\(([\w./-]+)\)", path.read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{path.name} links to {target}"


def test_there_are_as_many_rules_of_alarms_as_it_says() -> None:
    assert f"{len(RULES)} rules" in ENGLISH.read_text(encoding="utf-8")
    assert f"{len(RULES)} 条规则" in CHINESE.read_text(encoding="utf-8")
