"""Which spider a command line names, and what its arguments become."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbweb import Spider
from orbweb.cli.target import load_spider, make_spider
from orbweb.errors import ConfigError

ONE = """
import orbweb
class Shop(orbweb.Spider):
    pass
"""
TWO = f"""{ONE}
class News(Shop):
    pass
"""


class Picky(Spider):
    place = ""

    def __init__(self, *, depth: int | None = None, deep: bool = False, rate=1.5, **more) -> None:
        super().__init__(**more)
        self.seen = (depth, deep, rate)


def write(folder: Path, text: str, name: str = "some_spider.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def test_a_file_with_one_spider_needs_no_class_name(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path, ONE, "only_one.py")).__name__ == "Shop"


def test_a_class_is_named_after_a_colon(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path, TWO, "two_named.py") + ":News").__name__ == "News"


def test_several_spiders_are_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"several spiders \(Shop, News\)"):
        load_spider(write(tmp_path, TWO, "two_unnamed.py"))


def test_a_file_named_like_a_standard_module_is_loaded_all_the_same(tmp_path: Path) -> None:
    assert load_spider(write(tmp_path, ONE, "queue.py")).__name__ == "Shop"


def test_a_module_is_found_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, ONE, "module_of_cwd.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_spider("module_of_cwd:Shop").__name__ == "Shop"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("{}/nothing.py", "there is no file"),
        ("no_such_module_here", "a spider, a file nor a module"),
        ("{}/empty.py", "has no spider"),
        ("{}/shop.py:Shpo", "did you mean Shop"),
        ("{}/shop.py:orbweb", "is no spider"),
    ],
)
def test_what_cannot_be_found_is_said(tmp_path: Path, target: str, text: str) -> None:
    write(tmp_path, "", "empty.py")
    write(tmp_path, ONE, "shop.py")
    with pytest.raises(ConfigError, match=text):
        load_spider(target.format(tmp_path))


def test_an_error_inside_of_the_file_is_not_hidden(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="not_installed_here"):
        load_spider(write(tmp_path, "import not_installed_here", "needs_more.py"))


def test_text_becomes_what_the_constructor_wants() -> None:
    spider = make_spider(Picky, {"depth": "3", "deep": "yes", "rate": "0.5", "place": "here"})
    assert spider.seen == (3, True, 0.5)
    assert spider.place == "here"


def test_arguments_of_the_framework_are_numbers_too() -> None:
    spider = make_spider(Spider, {"thread_count": "4", "redis_key": "news"})
    assert spider.setting_arguments["CONCURRENT_REQUESTS"] == 4
    assert spider.redis_key == "news"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"thread_count": "many"}, "whole number"),
        ({"thread_coun": "4"}, "thread_count?"),
        ({"parse": "x"}, "is a method"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make_spider(Spider, arguments)


def test_an_argument_that_the_constructor_needs_is_asked_for() -> None:
    class Needs(Spider):
        def __init__(self, region: str) -> None:
            super().__init__()

    with pytest.raises(ConfigError, match="'region'"):
        make_spider(Needs, {})


def test_arguments_reach_the_framework_through_kwargs() -> None:
    assert make_spider(Picky, {"thread_count": "2"}).setting_arguments["CONCURRENT_REQUESTS"] == 2
