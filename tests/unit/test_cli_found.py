"""Which spiders a directory has, as far as its files say without being executed."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbweb.cli.found import find_named, find_spiders
from orbweb.cli.genspider import generate
from orbweb.cli.new import class_name_of, module_of
from orbweb.cli.target import load_spider
from orbweb.errors import ConfigError

FILES = {
    "news.py": "import orbweb as mw\nclass News(mw.Spider):\n    name = 'daily'\n",
    "spiders/shop.py": (
        "from orbweb import AirSpider, Spider\n"
        "class Base(Spider[int]):\n    pass\n"
        "class Shop(Base):\n    name: str = NAME\n"
        "class Air(AirSpider):\n    pass\n"
        "class _Hidden(AirSpider):\n    pass\n"
        "class Table:\n    pass\n"
        "raise SystemExit('executed')\n"
    ),
    "spiders/loop.py": "class A(B):\n    pass\nclass B(A):\n    pass\n",
    "broken.py": "class (",
    "deep/er/far.py": "import orbweb\nclass Far(orbweb.Spider):\n    pass\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_spiders_are_found_by_their_bases_and_nothing_is_executed(folder: Path) -> None:
    spiders, broken = find_spiders(folder)
    assert [(one.name, one.kind, one.file.name, one.alone) for one in spiders] == [
        ("daily", "Spider", "news.py", True),
        ("Base", "Spider", "shop.py", False),
        ("Shop", "Spider", "shop.py", False),
        ("Air", "AirSpider", "shop.py", False),
    ]
    assert [line.partition(":")[0] for line in broken] == [str(folder / "broken.py")]


def test_a_spider_is_named_by_its_file_its_class_or_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    here = Path()
    assert find_named("shop", here) == "spiders/shop.py"
    assert find_named("daily", here) == find_named("News", here) == "news.py"
    assert find_named("Air", here) == "spiders/shop.py:Air"
    assert find_named("Table", here) is None
    assert load_spider("daily").__name__ == "News"


def test_a_name_that_two_spiders_have_names_none(folder: Path) -> None:
    (folder / "other.py").write_text(FILES["news.py"])
    assert find_named("daily", folder) is None


@pytest.mark.parametrize(
    ("url", "start", "domain"),
    [
        ("news.example", "https://news.example/", "news.example"),
        ("http://news.example:8080/a?b='\"", "http://news.example:8080/a?b='\"", "news.example"),
    ],
)
def test_a_generated_spider_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, start: str, domain: str
) -> None:
    monkeypatch.chdir(tmp_path)
    generate("daily-news", url)
    spider = load_spider(str(tmp_path / "daily_news.py"))
    assert spider.__name__ == "DailyNewsSpider"
    assert (spider.start_urls, vars(spider)["allowed_domains"]) == ((start,), (domain,))
    with pytest.raises(ConfigError, match="is there already"):
        generate("daily-news", url)


@pytest.mark.parametrize(
    ("name", "url"), [("1", "a.example"), ("class", "a.example"), ("a", "a b")]
)
def test_what_is_no_name_or_no_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"no good name|no address"):
        generate(name, url)
    assert list(tmp_path.iterdir()) == []


def test_names_become_files_and_classes() -> None:
    assert (module_of("My-shop"), class_name_of("My-shop")) == ("my_shop", "MyShopSpider")
    assert class_name_of("ShopSpider") == "ShopSpider"
