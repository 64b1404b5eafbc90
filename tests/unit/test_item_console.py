"""Items on the terminal."""

from __future__ import annotations

import pytest

from orbweb.pipelines.console import ConsolePipeline


def test_each_row_is_a_line_with_its_table(capsys: pytest.CaptureFixture[str]):
    pipeline = ConsolePipeline()
    assert pipeline.save_items("news", [{"t": "茶"}, {"t": {1}}]) is True
    assert pipeline.update_items("news", [{"id": 1}], ["id", "day"]) is True
    assert capsys.readouterr().out.splitlines() == [
        'news {"t": "茶"}',
        'news {"t": "{1}"}',
        'news (update by id, day) {"id": 1}',
    ]
