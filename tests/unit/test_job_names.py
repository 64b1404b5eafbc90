"""What names the job of a spider."""

from __future__ import annotations

import orbweb


class Keyed(orbweb.Spider):
    redis_key = "books:start"


def test_a_class_may_name_its_job_and_an_argument_goes_before_it() -> None:
    assert Keyed().redis_key == "books:start"
    assert Keyed(redis_key="other").redis_key == "other"
    assert orbweb.Spider().redis_key == "Spider"
