"""The support archive: it has what helps, and none of the secrets that were planted."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.program import Program

from orbweb.testing.site import SiteThread

SECRETS = {
    "in a header": "hush-header-1",
    "in a cookie": "hush-cookie-2",
    "in a query": "hush-query-3",
    "as user": "hush-user-4",
    "in meta": "hush-meta-5",
    "in an error": "hush-error-6",
    "in a log line": "hush-log-7",
    "in a setting": "hush-setting-8",
    "in a list": "hush-list-9",
    "in the environment": "hush-environment-10",
    "in an address": "hush-address-11",
    "in a body": "hush-body-12",
    "in a live value": "hush-live-13",
    "in a header of its own": "hush-own-header-14",
    "in a cookie that is repeated": "hush-repeated-15",
}
SPIDER = f"""
import orbweb

class ShopSpider(orbweb.Spider):
    url = ""
    custom_settings = {{"X_TOKENS": ["{SECRETS["in a list"]}"]}}

    def start_requests(self):
        yield orbweb.Request(f"{{self.url}}/")
        place = self.url.replace("://", "://{SECRETS["as user"]}@")
        yield orbweb.Request(
            f"{{place}}/no-such-page?api_key={SECRETS["in a query"]}",
            method="POST",
            headers={{"Authorization": "Bearer {SECRETS["in a header"]}"}},
            cookies={{"session": "{SECRETS["in a cookie"]}"}},
            data="{SECRETS["in a body"]}",
            meta={{"login": "{SECRETS["in meta"]}"}},
        )
        yield orbweb.Request(
            f"{{self.url}}/flat?n=1",
            callback=self.parse_flat,
            headers={{"X-Api-Key": "{SECRETS["in a header of its own"]}"}},
            cookies={{"session": "{SECRETS["in a cookie that is repeated"]}"}},
        )

    def parse(self, response):
        self.logger.warning("token={SECRETS["in a log line"]} was refused")

    def parse_flat(self, response):
        raise ValueError(
            "cannot log in with password={SECRETS["in an error"]}, only as "
            "{SECRETS["in a header of its own"]} or {SECRETS["in a cookie that is repeated"]}"
        )
"""
TOML = f"""
LOG_FILE = "crawl.log"
SPIDER_MAX_RETRY_TIMES = 0
SQL_URL = "postgresql://u:{SECRETS["in an address"]}@db/shop"
X_API_KEY = "{SECRETS["in a setting"]}"
"""


def test_the_archive_has_what_helps_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SPIDER)
    (tmp_path / "orbweb.toml").write_text(TOML)
    program = Program(tmp_path, MY_SERVICE_TOKEN=SECRETS["in the environment"])
    with SiteThread() as site:
        program("run", "shop.py", "-a", f"url={site.url}")
    with (tmp_path / "crawl.log").open("a") as log:
        log.write(f"somebody said {SECRETS['in the environment']} aloud\n")
    secret = SECRETS["in a live value"]
    program("config", "set", "X_LOGIN_TOKEN", secret, "--reason", "new", "--wait", "0")
    done = program("bundle", "-o", "help.zip")
    assert done.stdout == "help.zip\n"
    with zipfile.ZipFile(tmp_path / "help.zip") as archive:
        parts = {name: archive.read(name).decode() for name in archive.namelist()}
    for where, secret in SECRETS.items():
        assert [name for name, text in parts.items() if secret in text] == [], where
    store = json.loads(parts["store.json"])
    (run,) = store["runs"]
    assert (run["job"], run["reasons"]["done"], run["dead"]) == ("ShopSpider", 1, 2)
    samples = {sample["reason"]: sample for sample in run["failed_samples"]}
    assert samples["callback_error"]["error"].startswith("ValueError: cannot log in")
    assert [each["request"]["method"] for each in run["failed_samples"]].count("POST") == 1, samples
    assert store["kept"]["ShopSpider"][0]["settings"]["X_TOKENS"]
    assert all(host["host"].startswith("127.0.0.1") for host in store["hosts"])
    assert [each["place"] for each in store["live"]] == ["X_LOGIN_TOKEN"]
    assert store["servers"][0]["server_name"] == "valkey"
    assert "was refused" in parts["log.txt"]
    assert "aloud" in parts["log.txt"]
    assert len(json.loads(parts["crawl.json"])) == 3
    assert {"SQL_URL", "LOG_FILE", "X_API_KEY"} <= {
        each["name"] for each in json.loads(parts["settings.json"])
    }
    assert any(each["check"] == "store" for each in json.loads(parts["doctor.json"]))
    assert "is there already" in program("bundle", "-o", "help.zip", code=2).stderr


def test_without_a_store_the_rest_is_there(tmp_path: Path) -> None:
    Program(tmp_path)("bundle", "-o", "help.zip")
    with zipfile.ZipFile(tmp_path / "help.zip") as archive:
        assert "there is no store here" in archive.read("store.json").decode()
        assert json.loads(archive.read("versions.json"))["orbweb"]
