"""Addresses of servers that are none: what the error says, and what it must not say."""

from __future__ import annotations

import pytest

from orbweb.errors import ConfigError
from orbweb.frontier.server import connect


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://:s3/cret@db:6379/0", "its port is no number; in a password write"),
        ("redis://:s3cret@db:6379/0?pasword=x", "unknown option 'pasword'"),
        ("redis://:s3cret@[::bad", "Invalid IPv6 URL"),
    ],
)
def test_a_wrong_address_is_a_configuration_error_without_its_password(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        connect(url, 1.0)
    assert text in str(caught.value)
    assert "s3" not in str(caught.value)
    assert "cret" not in str(caught.value)
