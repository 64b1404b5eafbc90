import pytest

pytest.register_assert_rewrite("orbweb.testing")
