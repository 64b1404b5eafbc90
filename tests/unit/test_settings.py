"""Settings: where they come from, which wins, and what a mistake says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orbweb.cli.about import View, setting_record
from orbweb.errors import ConfigError
from orbweb.settings import DECLARATIONS, Settings, load_settings


def load(
    directory: Path,
    *,
    spider: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    command_line: Mapping[str, Any] | None = None,
    **environ: str,
) -> Settings:
    return load_settings(
        spider_settings=spider,
        spider_name="NewsSpider",
        arguments=arguments,
        overrides=command_line,
        directory=directory,
        environ=environ,
    )


def test_every_setting_has_a_value_and_the_origin_default(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert set(settings) == set(DECLARATIONS)
    assert settings["CONCURRENT_REQUESTS"] == 16
    assert {settings.origin(name) for name in settings} == {"default"}
    assert settings.notes == ()


@pytest.mark.parametrize("setting", DECLARATIONS.values(), ids=lambda setting: setting.name)
def test_a_default_is_a_legal_value_of_its_own_setting(setting: Any, tmp_path: Path) -> None:
    settings = load(tmp_path, spider={setting.name: setting.default})
    assert settings[setting.name] == setting.default
    assert setting.text.endswith(".")


def test_each_place_wins_over_those_before_it(tmp_path: Path) -> None:
    places: list[tuple[str, dict[str, Any]]] = [
        ("file setting.py", {}),
        ("environment NETSPY_CONCURRENT_REQUESTS", {"NETSPY_CONCURRENT_REQUESTS": "2"}),
        ("environment ORBWEB_CONCURRENT_REQUESTS", {"ORBWEB_CONCURRENT_REQUESTS": "3"}),
        ("NewsSpider.custom_settings", {"spider": {"CONCURRENT_REQUESTS": 4}}),
        ("NewsSpider(...)", {"arguments": {"thread_count": 5}}),
        ("command line", {"command_line": {"CONCURRENT_REQUESTS": "6"}}),
    ]
    (tmp_path / "setting.py").write_text("CONCURRENT_REQUESTS = 1\n")
    given: dict[str, Any] = {}
    for value, (origin, more) in enumerate(places, start=1):
        given |= more
        settings = load(tmp_path, **given)
        assert settings["CONCURRENT_REQUESTS"] == value
        assert settings.origin("CONCURRENT_REQUESTS") == origin


def test_a_python_file_gives_its_names_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "settings.py").write_text(
        "import os\nDAY = None\ndel DAY\n_HIDDEN = 1\nRUN_TTL = 7 * 86400\nX_SHOP = {'a': 1}\n"
    )
    settings = load(tmp_path)
    assert settings["RUN_TTL"] == 604_800.0
    assert isinstance(settings["RUN_TTL"], float)
    assert settings["X_SHOP"] == {"a": 1}
    assert settings.origin("RUN_TTL") == "file settings.py"


def test_a_toml_file_is_preferred_and_the_file_passed_over_is_noted(tmp_path: Path) -> None:
    (tmp_path / "orbweb.toml").write_text('USER_AGENT = "bot/1"\n')
    (tmp_path / "settings.py").write_text("raise SystemExit('never executed')\n")
    settings = load(tmp_path)
    assert settings["USER_AGENT"] == "bot/1"
    assert settings.notes == ("settings.py is not read, because orbweb.toml is there",)


def test_who_exports_the_name_that_others_read_is_told_ours(tmp_path: Path) -> None:
    (told,) = load(tmp_path, REDIS_URL="redis://:hush@h:6379").notes
    assert "ORBWEB_REDIS_URL" in told
    assert "hush" not in told
    both = load(tmp_path, REDIS_URL="redis://a", ORBWEB_REDIS_URL="redis://b")
    assert (both["REDIS_URL"], both.notes) == ("redis://b", ())
    meant = load(tmp_path, spider={"REDIS_URL": ""}, REDIS_URL="redis://a")
    assert (meant["REDIS_URL"], meant.notes) == ("", ())


def test_pyproject_counts_only_with_a_table_of_ours(tmp_path: Path) -> None:
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\n')
    assert load(tmp_path).origin("DEPTH_LIMIT") == "default"
    project.write_text("[tool.orbweb]\nDEPTH_LIMIT = 3\n")
    assert load(tmp_path)["DEPTH_LIMIT"] == 3


def test_a_variable_can_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "setting.py").write_text("DEPTH_LIMIT = 1\n")
    (tmp_path / "other.py").write_text("DEPTH_LIMIT = 2\n")
    assert load(tmp_path, NETSPY_SETTING="other.py")["DEPTH_LIMIT"] == 2
    with pytest.raises(ConfigError, match=r"ORBWEB_SETTING names .*gone\.py"):
        load(tmp_path, ORBWEB_SETTING="gone.py")


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("orbweb.toml", "A = = 1", "orbweb.toml cannot be read"),
        ("settings.py", "1 / 0", "ZeroDivisionError"),
        ("settings.py", "import sys; sys.exit(3)", "SystemExit"),
        ("pyproject.toml", "[tool]\norbweb = 1", "must be a table"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, file: str, text: str, says: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(ConfigError, match=says):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("ROBOTS_OBEY", "off", False),
        ("ROBOTS_OBEY", "1", True),
        ("DOWNLOAD_DELAY", "0.5", 0.5),
        ("MAX_RESPONSE_SIZE", "2 MiB", 2 * 1024 * 1024),
        ("RETRY_STATUS_CODES", "500, 503", (500, 503)),
        ("RETRY_STATUS_CODES", "[500]", (500,)),
        ("ALLOWED_DOMAINS", "a.example, b.example", ("a.example", "b.example")),
        ("ITEM_PIPELINES", '{"b.B": 2, "a.A": 1, "c.C": null}', ("a.A", "b.B")),
        ("LOG_FILE", "", None),
        ("LOG_LEVEL", "debug", "DEBUG"),
        ("X_KEY", "5", "5"),
    ],
)
def test_text_from_the_environment_is_read_by_kind(
    tmp_path: Path, name: str, text: str, value: object
) -> None:
    given: dict[str, Any] = {f"ORBWEB_{name}": text}
    assert load(tmp_path, **given)[name] == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONCURRENT_REQUESTS", "16"),
        ("CONCURRENT_REQUESTS", True),
        ("CONCURRENT_REQUESTS", 1.5),
        ("CONCURRENT_REQUESTS", 0),
        ("DOWNLOAD_DELAY", float("nan")),
        ("DOWNLOAD_DELAY", 1e300),
        ("CONCURRENT_REQUESTS", 10**23),
        ("MAX_RESPONSE_SIZE", "99999999999 GiB"),
        ("DOWNLOAD_DELAY", -1),
        ("ROBOTS_OBEY", 1),
        ("RETRY_STATUS_CODES", [42]),
        ("RETRY_STATUS_CODES", ["500"]),
        ("ALLOWED_DOMAINS", "a.example"),
        ("ITEM_PIPELINES", [print]),
        ("USER_AGENT", None),
        ("DEDUP_SCOPE", "both"),
        ("SPIDER_TASK_LEASE", 0),
        ("REDIS_KEY_PREFIX", "a{b}"),
        ("REDIS_URL", "localhost:6379"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_value_and_origin(
    tmp_path: Path, name: str, value: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, spider={name: value})
    text = str(caught.value)
    assert text.startswith(f"{name} = {value!r} (NewsSpider.custom_settings): ")


def test_wrong_text_says_what_would_be_right(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, ORBWEB_CONCURRENT_REQUESTS="many")
    assert str(caught.value) == (
        "CONCURRENT_REQUESTS = 'many' (environment ORBWEB_CONCURRENT_REQUESTS): "
        "a whole number is wanted, for example 16"
    )


@pytest.mark.parametrize(
    "given",
    [
        {"spider": {"CONCURENT_REQUESTS": 4}},
        {"ORBWEB_CONCURENT_REQUESTS": "4"},
        {"command_line": {"concurrent_requests": "4"}},
    ],
)
def test_an_unknown_name_is_an_error_with_a_suggestion(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="did you mean CONCURRENT_REQUESTS"):
        load(tmp_path, **given)


def test_an_unknown_name_like_no_other_says_how_own_keys_begin(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'QQQQ' \(command line\).*X_"):
        load(tmp_path, command_line={"QQQQ": "1"})


def test_an_unknown_variable_of_another_product_is_only_noted(tmp_path: Path) -> None:
    settings = load(tmp_path, NETSPY_HUB="x", ORBWEB_TEST_REDIS="y", ORBWEBS="z", PATH="/bin")
    assert len(settings.notes) == 1
    assert "NETSPY_HUB" in settings.notes[0]


def test_old_names_count_as_ours(tmp_path: Path) -> None:
    settings = load(tmp_path, spider={"ROBOTSTXT_OBEY": False, "RETRY_TIMES": 9})
    assert settings["ROBOTS_OBEY"] is False
    assert settings["SPIDER_MAX_RETRY_TIMES"] == 9
    assert "RETRY_TIMES" not in settings


def test_an_old_and_a_new_name_in_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep CONCURRENT_REQUESTS"):
        load(tmp_path, spider={"thread_count": 1, "CONCURRENT_REQUESTS": 2})


def test_needless_settings_give_one_note_each(tmp_path: Path) -> None:
    settings = load(tmp_path, spider={"SPIDER_STARTUP_GRACE": 10.0, "DONE_CHECK_TIMES": 3})
    assert len(settings.notes) == 2
    assert "SPIDER_STARTUP_GRACE (NewsSpider.custom_settings) has no effect" in settings.notes[0]
    assert "SPIDER_STARTUP_GRACE" not in settings


def test_a_feature_that_is_not_there_is_refused_unless_switched_off(tmp_path: Path) -> None:
    assert load(tmp_path, spider={"PROXY_EXTRACT_API": ""}).notes == ()
    with pytest.raises(ConfigError, match="feature that this version does not have"):
        load(tmp_path, spider={"PROXY_EXTRACT_API": "http://api.test"})
    with pytest.raises(ConfigError, match="METRICS_PROMETHEUS_PORT"):
        load(tmp_path, ORBWEB_METRICS_PROMETHEUS_PORT="a:9092")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("redis", "bloom"), ("redis-bloom", "bloom"), ("redis-set", "set")]
)
def test_netspys_dedup_kinds_are_known(tmp_path: Path, theirs: str, ours: str) -> None:
    assert load(tmp_path, spider={"DEDUP_FILTER": theirs})["DEDUP_FILTER"] == ours


def test_a_dedup_kind_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="compact"):
        load(tmp_path, spider={"DEDUP_FILTER": "nonsense"})


@pytest.mark.parametrize(("name", "value"), [("DEDUP_ERROR_RATE", 0.7), ("DEDUP_MAX_LAYERS", 33)])
def test_a_value_beyond_the_greatest_is_refused(tmp_path: Path, name: str, value: float) -> None:
    with pytest.raises(ConfigError, match="is the most"):
        load(tmp_path, spider={name: value})


def test_settings_of_one_spider_do_not_reach_another(tmp_path: Path) -> None:
    mine = {"ALLOWED_DOMAINS": ["a.example"]}
    first = load(tmp_path, spider=mine)
    mine["ALLOWED_DOMAINS"].append("b.example")
    assert first["ALLOWED_DOMAINS"] == ("a.example",)
    assert load(tmp_path)["ALLOWED_DOMAINS"] == ()
    with pytest.raises(TypeError):
        first["DEPTH_LIMIT"] = 1  # type: ignore[index]


def test_settings_of_a_spider_must_be_a_dict(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"NewsSpider\.custom_settings must be a dict, not list"):
        load(tmp_path, spider=["x"])  # type: ignore[arg-type]


def test_names_of_settings_are_text(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"NewsSpider\.custom_settings: .* not 3"):
        load(tmp_path, spider={3: "x"})  # type: ignore[dict-item]


@pytest.mark.parametrize("agent", ["", "  ", "/1.0", "bot/1.0\r\nX: y"])
def test_a_user_agent_begins_with_a_name(agent: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mybot/1\.0"):
        load(tmp_path, spider={"USER_AGENT": agent})
    if agent:  # else it is that of USER_AGENT
        with pytest.raises(ConfigError, match=r"mybot/1\.0"):
            load(tmp_path, spider={"ROBOTS_USER_AGENT": agent})


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    settings = load(tmp_path, ORBWEB_REDIS_URL="redis://:s3cret@db:6379/0")
    assert settings["REDIS_URL"] == "redis://:s3cret@db:6379/0"
    assert "s3cret" not in repr(settings)
    assert settings.shown("REDIS_URL") == "'redis://:***@db:6379/0'"
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, ORBWEB_REDIS_URL="http://:s3cret@db:6379/0")
    assert "s3cret" not in str(caught.value)


def test_origin_of_an_unknown_name_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        load(tmp_path).origin("NOPE")


def test_a_rate_is_kept_as_it_is_written(tmp_path: Path) -> None:
    assert load(tmp_path)["UNAPPROVED_RATE"] == "0.5/s"
    assert load(tmp_path, spider={"UNAPPROVED_RATE": "30/m"})["UNAPPROVED_RATE"] == "30/m"
    assert load(tmp_path, ORBWEB_UNAPPROVED_RATE=" 1/10s ")["UNAPPROVED_RATE"] == "1/10s"
    assert load(tmp_path, spider={"UNAPPROVED_RATE": 4})["UNAPPROVED_RATE"] == "4/s"
    with pytest.raises(ConfigError, match=r"UNAPPROVED_RATE.*30/m"):
        load(tmp_path, spider={"UNAPPROVED_RATE": [1]})


def test_settings_of_other_frameworks_throttles(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        spider={
            "AUTOTHROTTLE_ENABLED": True,
            "AUTOTHROTTLE_TARGET_CONCURRENCY": 2.0,
            "CIRCUIT_COOLDOWN": 30,
            "RANDOMIZE_DOWNLOAD_DELAY": True,
        },
    )
    assert settings["AUTOTHROTTLE_ENABLED"] is True
    assert settings["CIRCUIT_COOLDOWN"] == 30.0
    (note,) = settings.notes
    assert "AUTOTHROTTLE_TARGET_CONCURRENCY" in note


@pytest.mark.parametrize(
    "value",
    [
        "redis://:hunter2@h:1/0",
        "redis://u:a/hunter2@h",
        "rediss://u:a hunter2#x@h",
        "redis://h/0?passwrd=hunter2",
        "redis:/:hunter2@h",
        ":hunter2@h",
    ],
)
@pytest.mark.parametrize(
    "name", [name for name, setting in DECLARATIONS.items() if setting.secret and "URL" in name]
)
def test_no_password_in_an_address_is_shown_however_it_is_written(
    tmp_path: Path, name: str, value: str
) -> None:
    if name == "ALERTS_HEARTBEAT_URL" or ("SQL" not in name and "://" not in value):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, command_line={name: value})
        assert "hunter2" not in str(caught.value)
        return
    settings = load(tmp_path, command_line={name: value})
    assert "hunter2" not in settings.shown(name)
    assert "hunter2" not in json.dumps(setting_record(View(settings), DECLARATIONS[name]))
    assert "hunter2" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MYSQL_PASSWORD", "hunter2"),
        ("POSTGRES_PASSWORD", "hunter2"),
        ("MONGO_URI", "mongodb://u:hunter2@a,b/x?tls=true"),
        ("ELASTICSEARCH_HOSTS", "https://u:hunter2@a:9200,https://u:hunter2@b:9200"),
        ("CONFIG_SOURCE", "consul://:hunter2@h:8500/orbweb/"),
        ("PROXY_LIST", "http://u:hunter2@a:8000,b:hunter2@c:1"),
        ("KAFKA_OPTIONS", "sasl.username=u,sasl.password=hunter2,ssl.key.pem=hunter2"),
        ("OTLP_HEADERS", "authorization=Bearer hunter2,x-other=hunter2"),
        ("X_API_TOKEN", "hunter2"),
        ("WARNING_FEISHU_WEBHOOK", "https://open.feishu.cn/open-apis/bot/v2/hook/hunter2"),
        ("WARNING_DINGTALK_WEBHOOK", "https://oapi.dingtalk.com/robot/send?access_token=hunter2"),
        ("WARNING_WECHAT_WEBHOOK", "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=hunter2"),
        ("WARNING_DINGTALK_SECRET", "hunter2"),
        ("WARNING_EMAIL", '{"host": "h", "to": "a@b", "password": "hunter2"}'),
        ("ALERTS_CHANNELS", "a=slack://hunter2/x,b=https://h/hunter2,c=hunter2"),
        ("ALERTS_HEARTBEAT_URL", "https://hc.example/hunter2"),
    ],
)
def test_no_secret_setting_is_shown(tmp_path: Path, name: str, value: str) -> None:
    settings = load(tmp_path, command_line={name: value})
    assert "hunter2" not in settings.shown(name)
    assert "hunter2" not in repr(settings)
    if name in DECLARATIONS:
        assert "hunter2" not in json.dumps(setting_record(View(settings), DECLARATIONS[name]))


def test_every_setting_that_is_secret_is_meant_by_these_tests() -> None:
    plain = {name for name, setting in DECLARATIONS.items() if setting.secret and "URL" not in name}
    assert plain == {
        *("MYSQL_PASSWORD", "POSTGRES_PASSWORD"),
        *("MONGO_URI", "ELASTICSEARCH_HOSTS", "KAFKA_OPTIONS", "OTLP_HEADERS"),
        *("WARNING_FEISHU_WEBHOOK", "WARNING_DINGTALK_WEBHOOK", "WARNING_WECHAT_WEBHOOK"),
        *("WARNING_DINGTALK_SECRET", "WARNING_EMAIL", "ALERTS_CHANNELS"),
        *("PROXY_LIST", "CONFIG_SOURCE"),
    }
