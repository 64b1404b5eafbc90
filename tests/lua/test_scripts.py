"""Names and sources of the scripts: Python, the folder and the Lua must agree."""

from __future__ import annotations

import re
from importlib.resources import files

from orbweb.frontier.keys import ITEM_KEYS, RUN_KEYS, ShardKeys
from orbweb.frontier.scripts import (
    SEEING,
    SEEN_KINDS,
    TRANSITIONS,
    lua_text,
    numbers_written_out,
    parts,
    script,
    without_unused,
)
from orbweb.frontier.seen import SeenKind

SHARED = {part for name in TRANSITIONS for kind in SEEN_KINDS for part in parts(name, kind)[:-1]}
FOLDER = files("orbweb.frontier").joinpath("lua")


def test_each_transition_is_a_file_and_each_file_a_transition() -> None:
    names = {file.name.removesuffix(".lua") for file in FOLDER.iterdir()}
    assert names == {*TRANSITIONS, *SHARED}
    assert set(SEEN_KINDS) == set(SeenKind)
    assert set(TRANSITIONS) > SEEING


def test_keys_of_a_run_are_those_of_the_lua() -> None:
    use = re.search(r"local function use\(base\)(.*?)\nend", lua_text("shard"), re.DOTALL)
    assert use
    suffixes = set(re.findall(r"base \.\. ':(\w+)'", use[1]))
    queue = set(re.findall(r"base \.\. ':(\w+):'", use[1]))
    assert suffixes | {"seen"} == RUN_KEYS
    assert queue == {"queue"}


def test_keys_of_a_shard_are_those_of_the_lua() -> None:
    texts = "".join(lua_text(name) for name in (*SHARED, *TRANSITIONS))
    used = set(re.findall(r"SHARD \.\. ':(\w+):?'", texts))
    keys = ShardKeys("p")
    named = [keys.clock, keys.next_allowed, keys.current, keys.runs, keys.garbage, keys.jobs]
    named += [keys.steered, keys.rates, keys.audit, keys.task_list("k"), keys.tuned, keys.config]
    named += [keys.tuned_by]
    named += [keys.role("r")]
    named += [
        keys.host("h"),
        keys.slots("h"),
        keys.waiting("h"),
        keys.host("h"),
        keys.pace,
        keys.job_seen("j", "g"),
        keys.run("j", "r", "e").base,
    ]
    assert {name.removeprefix(f"{keys.tag}:").partition(":")[0] for name in named} == used


def test_the_head_of_the_lua_names_every_key() -> None:
    head = lua_text("shard").partition("\nlocal ")[0]
    for name in RUN_KEYS:
        assert f":{name} " in head, name


def test_a_script_holds_only_the_functions_that_it_comes_to() -> None:
    def function(name: str, calls: str) -> str:
        return f"-- {name}: unlike other(), calls\nlocal function {name}()\n  {calls}\nend\n"

    shared = function("far", "return 1") + function("near", "far()") + function("other", "near()")
    kept = without_unused(shared, "near()\n")
    assert "function far" in kept
    assert "function near" in kept
    assert "function other" not in kept


def test_a_script_has_no_more_names_than_lua_allows() -> None:
    for name in TRANSITIONS:
        source = script(name).source.decode()
        functions = re.findall(r"^local function", source, re.MULTILINE)
        groups = re.findall(r"^local (?!function)([\w, ]+)", source, re.MULTILINE)
        names = len(functions) + sum(len(group.split(",")) for group in groups)
        assert names <= 200, f"{name}: {names}"


def test_every_transition_says_what_it_takes_and_returns() -> None:
    for name in TRANSITIONS:
        text = lua_text(name)
        assert text.startswith(f"-- {name}: ")
        assert "\n-- ARGV  1 time" in text
        assert "\n-- Returns  " in text


def test_scripts_never_look_through_the_whole_store() -> None:
    for name in (*SHARED, *TRANSITIONS):
        commands = set(re.findall(r"call\('(\w+)'", lua_text(name)))
        assert not commands & {"KEYS", "SCAN", "FLUSHDB", "FLUSHALL", "LREM"}, name


def test_what_is_known_of_a_runs_items_is_collected_with_it() -> None:
    assert set(re.findall(r"base \.\. ':(\w+)'", lua_text("collect"))) >= ITEM_KEYS


def test_named_numbers_are_no_names_of_a_script() -> None:
    source = """local A_MS = 50 -- of a wait
local A, TEXT, B = -2, 'A_MS', 3
local A_MS_ = 0.5
local function wait(at) return at + A_MS * A_MS_ - B end
"""
    assert numbers_written_out(source) == (
        "local A, TEXT, B = -2, 'A_MS', 3\nlocal function wait(at) return at + 50 * 0.5 - B end\n"
    )
    for name in TRANSITIONS:
        assert not re.search(r"^local [A-Z_]+ = -?\d", script(name).source.decode(), re.MULTILINE)
