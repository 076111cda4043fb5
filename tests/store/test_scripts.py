"""What holds for every script."""

from __future__ import annotations

import itertools
import re

import pytest
import redis

from unknot.supervisor.store.redis_store import RedisStore
from unknot.supervisor.store.scripts import load_script, script_names


@pytest.mark.parametrize("name", script_names())
def test_a_script_compiles_and_its_head_documents_keys_and_answers(store: RedisStore, name: str) -> None:
    script = load_script(name)
    assert store.command("SCRIPT", "LOAD", script.text) == script.sha.encode()
    head = list(itertools.takewhile(lambda line: line.startswith("--"), script.text.splitlines()))
    assert any(line.startswith("-- KEYS[1]") for line in head)
    assert any(line.startswith("-- Answers") for line in head)
    assert "-- include:" not in script.text


@pytest.mark.parametrize("name", script_names())
def test_a_script_sets_no_global_variable(store: RedisStore, name: str) -> None:
    # Redis refuses a script that creates a global at run time; a misspelt local would be one.
    assert not re.search(r"^\s*[a-z_]+ = function", load_script(name).text, re.MULTILINE)


def test_a_script_that_does_not_exist_is_a_mistake_that_names_it() -> None:
    with pytest.raises(KeyError, match=r"no_such\.lua"):
        load_script("no_such")


def test_a_script_that_fails_says_which_line(store: RedisStore) -> None:
    with pytest.raises(redis.ResponseError):
        store.script("register", [store.key()], ["only one argument"])
