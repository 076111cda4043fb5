"""Settings: order of sources, units, near misses, secrets."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import msgspec
import pytest

from unknot.recovery.errors import ConfigError
from unknot.supervisor.config import KEYS, Config, load_config, secret_of, settings
from unknot.supervisor.config_values import Secret, mask_url, parse_duration

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


class TestOrder:
    def test_without_any_source_every_value_is_the_default(self) -> None:
        found = load_config()
        assert found.config == Config()
        assert set(found.origins) == set(KEYS)
        assert set(found.origins.values()) == {"default"}

    def test_a_file_goes_before_the_default_the_environment_before_the_file_an_argument_before_all(
        self, tmp_path: Path
    ) -> None:
        path = write(tmp_path / "supervisor.toml", "lease_s = 7\nheartbeat_s = 2\nslow_after_s = 9\n")
        env = {"SUPERVISOR_LEASE_S": "8", "SUPERVISOR_HEARTBEAT_S": "3"}
        found = load_config({"lease_s": 9}, env, tmp_path)
        assert (found.config.lease_s, found.config.heartbeat_s, found.config.slow_after_s) == (9, 3, 9)
        assert found.origins["lease_s"] == "argument"
        assert found.origins["heartbeat_s"] == "environment SUPERVISOR_HEARTBEAT_S"
        assert found.origins["slow_after_s"] == str(path)

    def test_an_argument_of_none_and_an_empty_variable_count_as_not_given(self) -> None:
        found = load_config({"redis": None}, {"SUPERVISOR_REDIS": ""})
        assert found.config.redis is None

    def test_the_nearest_file_upward_holds(self, tmp_path: Path) -> None:
        write(tmp_path / "supervisor.toml", "lease_s = 7\n")
        write(tmp_path / "pyproject.toml", "[tool.supervisor]\nlease_s = 8\n")
        deep = tmp_path / "a" / "b"
        deep.mkdir(parents=True)
        assert load_config(cwd=deep).config.lease_s == 7
        write(tmp_path / "a" / "pyproject.toml", "[tool.supervisor]\nlease_s = 6\n")
        assert load_config(cwd=deep).config.lease_s == 6

    def test_a_pyproject_without_our_table_is_passed_by_even_if_it_is_broken(self, tmp_path: Path) -> None:
        write(tmp_path / "supervisor.toml", "lease_s = 7\n")
        inner = tmp_path / "inner"
        inner.mkdir()
        write(inner / "pyproject.toml", "[project\n")
        assert load_config(cwd=inner).config.lease_s == 7
        write(inner / "pyproject.toml", "[project]\nname = 'supervisor-of-mine'\n")
        assert load_config(cwd=inner).config.lease_s == 7

    def test_a_named_file_replaces_the_search(self, tmp_path: Path) -> None:
        write(tmp_path / "supervisor.toml", "lease_s = 7\n")
        other = write(tmp_path / "other.toml", "lease_s = 8\n")
        assert load_config(cwd=tmp_path, file=other).config.lease_s == 8

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("supervisor.toml", "lease_s = \n", "is not TOML"),
            ("pyproject.toml", "[project]\n", "has no [tool.supervisor]"),
            ("pyproject.toml", "[tool]\nsupervisor = 3\n", "is not a table"),
            ("pyproject.toml", "tool = 5 # supervisor\n", "tool in"),
            ("supervisor.toml", f"lease_s = {'[' * 5000}", "is not TOML"),
        ],
    )
    def test_a_named_file_that_cannot_be_used_is_an_error_that_names_it(
        self, tmp_path: Path, name: str, text: str, said: str
    ) -> None:
        path = write(tmp_path / name, text)
        with pytest.raises(ConfigError, match=name) as caught:
            load_config(file=path)
        assert said in str(caught.value)

    @pytest.mark.parametrize("text", ["tool = 5 # supervisor\n", "tool = ['supervisor']\n", "[tool]\nsupervisor = 3\n"])
    def test_a_found_pyproject_whose_tool_is_no_table_is_an_error_that_names_it(self, tmp_path: Path, text: str) -> None:
        path = write(tmp_path / "pyproject.toml", text)
        with pytest.raises(ConfigError, match=r"is not a table; write \[tool\.supervisor\]") as caught:
            load_config(cwd=tmp_path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        "line",
        [
            "lease_s = 0", "lease_s = 'soon'", "lease_s = '5'\nheartbeat_s = 1e-9", "lease_s = nan", "lease_s = -inf", "lease_s = []",
            "seed = -1", "seed = 1.5", "weights_kept = true", "on_silent = 'restrat'", "on_silent = 3", "redis = 'localhost'",
            "redis = 6379", "webhook_url = 'ftp://x'", "webhook_secret = 'x'", "webhook_secret_file = 'nowhere'", "leese_s = 3",
            "run_dir = ''", "run_dir = '~nobody-of-that-name/x'", "lease_s = 1\nheartbeat_s = 2", "log_level = 1979-05-27",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("name", ["supervisor.toml", "pyproject.toml"])
    def test_every_error_of_a_file_names_the_file_and_the_key(self, tmp_path: Path, name: str, line: str) -> None:
        path = write(tmp_path / name, ("[tool.supervisor]\n" if name == "pyproject.toml" else "") + line + "\n")
        with pytest.raises(ConfigError) as caught:
            load_config(cwd=tmp_path)
        text = str(caught.value)
        assert str(path) in text
        assert line.splitlines()[-1].split(" ")[0] in text
        assert "\n" not in text

    def test_a_named_file_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(file=tmp_path / "nowhere.toml")


class TestNearMisses:
    def test_an_unknown_key_in_a_file_is_an_error_that_proposes_the_near_one(self, tmp_path: Path) -> None:
        path = write(tmp_path / "supervisor.toml", "leese_s = 7\n")
        with pytest.raises(ConfigError) as caught:
            load_config(cwd=tmp_path)
        assert "'leese_s'" in str(caught.value)
        assert "did you mean lease_s?" in str(caught.value)
        assert str(path) in str(caught.value)

    def test_an_unknown_argument_is_an_error_that_proposes_the_near_one(self) -> None:
        with pytest.raises(ConfigError, match=r"did you mean on_deadlock\?"):
            load_config({"on_deadlok": "alert"})

    def test_an_unknown_variable_is_a_warning_that_proposes_the_near_one(self) -> None:
        found = load_config(env={"SUPERVISOR_LEESE_S": "7"})
        assert found.warnings == (
            "unknown variable SUPERVISOR_LEESE_S is ignored (did you mean SUPERVISOR_LEASE_S?)",
        )

    def test_internal_variables_raise_no_warning(self) -> None:
        names = ("DISABLED", "WORKER", "RUN", "RUN_DIR", "REDIS_SERVER")
        assert load_config(env={f"SUPERVISOR_{name}": "x" for name in names}).warnings == ()

    def test_an_unknown_choice_is_an_error_that_lists_all(self) -> None:
        with pytest.raises(ConfigError, match=r"did you mean break\?.*alert, interrupt, break"):
            load_config(env={"SUPERVISOR_ON_DEADLOCK": "brake"})


class TestValues:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("500ms", 0.5), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("1.5s", 1.5), ("2m 5s", 125)],
    )
    def test_durations_are_read_with_units(self, text: str, seconds: float) -> None:
        assert parse_duration(text, name="--interval") == pytest.approx(seconds)
        assert load_config({"slow_after_s": text}).config.slow_after_s == pytest.approx(seconds)

    def test_a_bare_number_is_refused_where_no_name_gives_its_unit(self) -> None:
        with pytest.raises(ConfigError, match="has no unit; write 5s"):
            parse_duration("5", name="--interval")

    @pytest.mark.parametrize("value", [5, 5.0, "5", "5s"])
    def test_a_bare_number_is_seconds_where_the_key_says_so(self, value: object) -> None:
        assert load_config({"slow_after_s": value}).config.slow_after_s == 5.0

    @pytest.mark.parametrize(
        "value", [0, -1, "0s", "-3", "nan", "soon", "", True, float("nan"), float("inf"), [1], "5x"]
    )
    def test_what_is_no_positive_duration_is_refused(self, value: object) -> None:
        with pytest.raises(ConfigError, match="slow_after_s"):
            load_config({"slow_after_s": value})

    @pytest.mark.parametrize(
        ("key", "value", "told"),
        [
            ("heartbeat_s", 1e-9, "too short to be kept; write 50ms or more"),
            ("heartbeat_s", "1ms", "too short to be kept; write 50ms or more"),
            ("lease_s", "0.05", "too short to be kept; write 100ms or more"),
            ("publish_every_s", 1e-300, "too short to be kept; write 1ms or more"),
            ("store_limit_s", 1e300, "too long; write at most 1e+09 seconds"),
            ("store_limit_s", "99999999h", "too long; write at most 1e+09 seconds"),
            pytest.param("store_limit_s", 10**400, "too long; write at most 1e+09 seconds", id="a large int"),
            ("seed", 2**70, "too large; write at most 9223372036854775807"),
            ("seed", str(2**70), "too large; write at most 9223372036854775807"),
            ("checkpoints_keep", 10**10, "too large; write at most 1000000000"),
        ],
    )
    def test_what_no_clock_keeps_and_no_count_reaches_is_refused(self, key: str, value: object, told: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_config({key: value})
        assert str(caught.value).startswith(f"{key} = ")
        assert told in str(caught.value)

    def test_the_largest_seed_is_taken(self) -> None:
        assert load_config({"seed": 2**63 - 1}).config.seed == 2**63 - 1

    @pytest.mark.parametrize("value", [5, "5", " 5 "])
    def test_a_count_is_a_whole_number(self, value: object) -> None:
        assert load_config({"checkpoints_keep": value}).config.checkpoints_keep == 5

    @pytest.mark.parametrize("value", [0, -1, 1.5, "1.5", "many", "", True, [1], "9" * 5000])
    def test_what_is_no_count_is_refused(self, value: object) -> None:
        with pytest.raises(ConfigError, match="checkpoints_keep"):
            load_config({"checkpoints_keep": value})

    def test_the_error_of_a_variable_names_the_variable(self) -> None:
        with pytest.raises(ConfigError, match="SUPERVISOR_SLOW_AFTER_S"):
            load_config(env={"SUPERVISOR_SLOW_AFTER_S": "soon"})

    @pytest.mark.parametrize("value", [17, "17", " 17 "])
    def test_a_whole_number_is_read_from_number_and_text(self, value: object) -> None:
        assert load_config({"seed": value}).config.seed == 17

    @pytest.mark.parametrize(("key", "value"), [("seed", -1), ("weights_kept", 0), ("seed", 1.5), ("seed", True), ("seed", "x")])
    def test_what_is_no_whole_number_or_too_small_is_refused(self, key: str, value: object) -> None:
        with pytest.raises(ConfigError, match=key):
            load_config({key: value})

    def test_a_lease_that_is_no_longer_than_the_heartbeat_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="every member counts as dead"):
            load_config({"lease_s": 1, "heartbeat_s": 1})

    def test_a_lease_and_a_heartbeat_that_do_not_fit_are_told_with_where_each_came_from(self) -> None:
        told = r"lease_s = 0\.5 \(environment SUPERVISOR_LEASE_S\) is not above heartbeat_s = 1 \(default\)"
        with pytest.raises(ConfigError, match=told):
            load_config(env={"SUPERVISOR_LEASE_S": "500ms"})

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("redis", "localhost:6379"),
            ("redis", "http://localhost"),
            ("redis", "redis://"),
            ("webhook_url", "ftp://host/x"),
            ("webhook_url", "file:///etc/passwd"),
            ("webhook_url", "https://"),
            ("webhook_url", "https://host:port/"),
            ("webhook_url", "https://[::1/"),
            ("redis", 6379),
        ],
    )
    def test_an_address_of_another_kind_is_refused(self, key: str, value: object) -> None:
        with pytest.raises(ConfigError):
            load_config({key: value})


class TestSecrets:
    def test_a_secret_comes_from_the_environment(self) -> None:
        found = load_config(env={"SUPERVISOR_WEBHOOK_SECRET": SECRET})
        assert found.config.webhook_secret is not None
        assert found.config.webhook_secret.reveal() == SECRET

    def test_a_secret_comes_from_a_file_that_lies_beside_the_settings(self, tmp_path: Path) -> None:
        write(tmp_path / "secret.txt", f"{SECRET}\n")
        write(tmp_path / "supervisor.toml", 'webhook_secret_file = "secret.txt"\n')
        deep = tmp_path / "deep"
        deep.mkdir()
        found = load_config(cwd=deep)
        assert found.config.webhook_secret is not None
        assert found.config.webhook_secret.reveal() == SECRET
        assert "webhook_secret_file" in found.origins["webhook_secret"]

    def test_the_environment_goes_before_a_secret_file_of_the_settings(self, tmp_path: Path) -> None:
        write(tmp_path / "secret.txt", "whsec_other")
        write(tmp_path / "supervisor.toml", 'webhook_secret_file = "secret.txt"\n')
        found = load_config(env={"SUPERVISOR_WEBHOOK_SECRET": SECRET}, cwd=tmp_path)
        assert found.config.webhook_secret is not None
        assert found.config.webhook_secret.reveal() == SECRET

    def test_a_secret_in_the_settings_or_the_arguments_is_refused_without_repeating_it(
        self, tmp_path: Path
    ) -> None:
        write(tmp_path / "supervisor.toml", f'webhook_secret = "{SECRET}"\n')
        with pytest.raises(ConfigError) as caught:
            load_config(cwd=tmp_path)
        assert SECRET not in str(caught.value)
        with pytest.raises(ConfigError) as caught:
            load_config({"webhook_secret": SECRET})
        assert SECRET not in str(caught.value)

    def test_two_secrets_of_one_source_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="keep one of the two"):
            load_config(env={"SUPERVISOR_WEBHOOK_SECRET": SECRET, "SUPERVISOR_WEBHOOK_SECRET_FILE": "x"})

    @pytest.mark.parametrize("text", ["", " \n"])
    def test_an_empty_secret_file_is_refused(self, tmp_path: Path, text: str) -> None:
        path = write(tmp_path / "secret.txt", text)
        with pytest.raises(ConfigError, match="is empty"):
            load_config({"webhook_secret_file": str(path)})

    def test_a_secret_is_in_no_form_in_which_settings_are_shown_or_handed_on(self) -> None:
        config = load_config(env={"SUPERVISOR_WEBHOOK_SECRET": SECRET}).config
        forms = [
            repr(config),
            str(config),
            str(config.__rich_repr__()),
            str(msgspec.structs.asdict(config)),
            msgspec.json.encode(config).decode(),
            msgspec.msgpack.encode(config).decode("latin-1"),
            pickle.dumps(config).decode("latin-1"),
            str(msgspec.to_builtins(config)),
        ]
        assert not [form for form in forms if SECRET in form or SECRET.removeprefix("whsec_") in form]

    def test_settings_that_were_handed_on_find_their_secret_again(self, tmp_path: Path) -> None:
        path = write(tmp_path / "secret.txt", SECRET)
        config = load_config({"webhook_secret_file": str(path)}).config
        handed_on = msgspec.json.decode(msgspec.json.encode(config), type=Config)
        found = secret_of(handed_on, {})
        assert found is not None
        assert found.reveal() == SECRET
        from_env = secret_of(Config(webhook_secret=Secret()), {"SUPERVISOR_WEBHOOK_SECRET": SECRET})
        assert from_env is not None
        assert from_env.reveal() == SECRET
        assert secret_of(Config(), {}) is None

    def test_workers_are_told_nothing_about_alerts(self) -> None:
        config = load_config(
            {"webhook_url": "https://host/T0/B0"}, {"SUPERVISOR_WEBHOOK_SECRET": SECRET}
        ).config
        assert config.for_workers() == Config()

    @pytest.mark.parametrize("sign", ["#", "/", "?"])
    @pytest.mark.parametrize(("key", "scheme"), [("redis", "redis"), ("webhook_url", "https")])
    def test_an_address_with_an_unescaped_password_is_refused_without_it(self, key: str, scheme: str, sign: str) -> None:
        address = f"{scheme}://bob:geheim{sign}x@h:6379"
        with pytest.raises(ConfigError, match=rf"{key} is not an address; .* of a password as %23") as caught:
            load_config({key: address})
        assert "geheim" not in "".join(traceback.format_exception(caught.value))

    def test_shown_settings_hold_no_password_and_no_path_of_a_webhook(self) -> None:
        found = load_config(
            {
                "redis": "redis://me:geheim@host:6380/2",
                "webhook_url": "https://user:geheim@hooks.example/T0/geheim?k=geheim",
            },
            {"SUPERVISOR_WEBHOOK_SECRET": SECRET},
        )
        shown = {setting.key: setting.value for setting in settings(found)}
        assert shown["redis"] == "redis://***@host:6380/2"
        assert shown["webhook_url"] == "https://***@hooks.example/…"
        assert shown["webhook_secret"] == "***"
        assert "geheim" not in str(shown)

    def test_an_address_with_an_ipv6_host_is_shown_with_its_brackets(self) -> None:
        assert mask_url("redis://[::1]:6379/0") == "redis://[::1]:6379/0"
        assert mask_url("unix:///tmp/redis.sock") == "unix:///tmp/redis.sock"
