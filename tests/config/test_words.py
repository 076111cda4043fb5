"""Words that a setting can be, and those that are refused in one line that names it."""

from __future__ import annotations

import pytest

from unknot.recovery.errors import ConfigError
from unknot.supervisor.config import load_config
from unknot.supervisor.config_values import read_switch
from unknot.supervisor.process import DISABLED_ENV, observation_off


@pytest.mark.parametrize("word", ["1", "true", "yes", "on", "TRUE", "Yes", " on "])
def test_a_word_that_means_on_switches_observation_off(word: str) -> None:
    assert observation_off({DISABLED_ENV: word})


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "False", "NO", " Off ", "", "  "])
def test_a_word_that_means_off_leaves_observation_on(word: str) -> None:
    assert not observation_off({DISABLED_ENV: word})
    assert not observation_off({})


@pytest.mark.parametrize("word", ["2", "maybe", "tru", "disabled", "-1", "yes\nno", "x" * 1000])
def test_another_word_is_refused_with_those_that_can_be(word: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_switch(word, name=DISABLED_ENV)
    said = str(caught.value)
    assert said.startswith("SUPERVISOR_DISABLED = ")
    assert said.endswith("is neither on nor off; write 1, true, yes or on; or 0, false, no or off")
    assert "\n" not in said
    assert len(said) < 200


@pytest.mark.parametrize("path", ["~nobody-of-that-name/x", "a\nb", "a\rb", "a\0b"])
@pytest.mark.parametrize("key", ["run_dir", "webhook_secret_file"])
def test_a_path_that_cannot_be_is_refused_with_the_name_of_the_setting(key: str, path: str) -> None:
    name = f"SUPERVISOR_{key.upper()}"
    with pytest.raises(ConfigError, match=f"^{name} = ") as caught:
        load_config(env={name: path})
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=f"^{key} = "):
        load_config({key: path})


@pytest.mark.parametrize("host", [f"{'a' * 64}.example", "a..b", "a%00b"])
@pytest.mark.parametrize(("key", "scheme"), [("redis", "redis"), ("webhook_url", "https")])
def test_a_host_that_cannot_be_is_refused_with_the_name_of_the_setting(key: str, scheme: str, host: str) -> None:
    name = f"SUPERVISOR_{key.upper()}"
    with pytest.raises(ConfigError, match=f"^the host of {name} ") as caught:
        load_config(env={name: f"{scheme}://:hunter2-secret@{host}:6379"})
    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)
