"""Runs and their ends: the first document's table, exit codes, nothing silent."""

from __future__ import annotations

from pathlib import Path

from tests.crash.fleet import Fleet


def asked(fleet: Fleet) -> int:
    return len(fleet.origin())


def test_the_table_of_run_ids(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=10) as fleet:
        assert fleet.start().wait() == 0
        assert asked(fleet) == 10

        again = fleet.start()
        assert again.wait() == 3, "a finished job is joined: nothing to do"
        assert "WARNING" in again.text()
        assert "10" in again.text()
        assert asked(fleet) == 10

        assert fleet.start(ORBWEB_RUN_ID="a").wait() == 0, "a new run crawls from the beginning"
        assert asked(fleet) == 20

        assert fleet.start(NETSPY_RUN_ID="a").wait() == 3, "the same id is the same run"
        assert asked(fleet) == 20

        incremental = fleet.start(ORBWEB_RUN_ID="b", ORBWEB_DEDUP_SCOPE="spider", PAGES=12)
        assert incremental.wait() == 0, "only what the job has not seen"
        assert asked(fleet) == 22
        assert "DEDUP_SCOPE" in incremental.text()


def test_a_finished_run_counts_as_absent_after_the_seed_lock_ttl(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=10, ORBWEB_DEDUP_SCOPE="run") as fleet:
        assert fleet.start().wait() == 0
        assert fleet.start(ORBWEB_SPIDER_SEED_LOCK_TTL="0.001").wait() == 0
        assert asked(fleet) == 20


def test_a_run_without_seeds_did_nothing(tmp_path: Path) -> None:
    with Fleet(tmp_path, "NothingSpider") as fleet:
        node = fleet.start()
        assert node.wait() == 3
        assert "WARNING" in node.text()


def test_netspys_needless_settings_are_noted_not_refused(tmp_path: Path) -> None:
    with Fleet(tmp_path, "FlatSpider", PAGES=3, NETSPY_SPIDER_STARTUP_GRACE="10") as fleet:
        node = fleet.start()
        assert node.wait() == 0
        assert "SPIDER_STARTUP_GRACE" in node.text()
