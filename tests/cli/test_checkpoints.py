"""`supervisor checkpoints` as users and scripts meet it, of a live run and of a directory."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.scene import Scene
from tests.recovery.manifests import form, record, write_files
from unknot.recovery.checkpoints import Checkpoints, Place
from unknot.recovery.manifest import Manifest
from unknot.supervisor.cli import exit_codes
from unknot.supervisor.cli.main import main
from unknot.supervisor.store.redis_store import RedisStore

Command = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def command(
    store: RedisStore, redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Runs the command in this process, for the run of this test."""
    ours = {name: "" for name in os.environ if name.startswith("SUPERVISOR_")}
    place = {"SUPERVISOR_REDIS": redis_url, "SUPERVISOR_RUN": store.run, "SUPERVISOR_RUN_DIR": str(tmp_path / "runs")}

    def run(*args: str, **env: str) -> CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in {**ours, **place, **env}.items():
                patch.setenv(name, value)
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["supervisor", "checkpoints", *args])
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return CompletedProcess(args, ended.value.code, out, err)

    return run


@pytest.fixture
def saved(store: RedisStore, tmp_path: Path) -> list[Manifest]:
    """Two committed checkpoints with their files, oldest first."""
    Scene(store).member("agent/a")
    store.command("HSET", store.key("step", "agent/a"), "committed", 17)
    checkpoints = Checkpoints(store, tmp_path / "checkpoints")
    places = form(store)
    return [save(checkpoints, places, seq) for seq in (5, 10)]


def save(checkpoints: Checkpoints, places: list[Place], seq: int) -> Manifest:
    """Commit a checkpoint of a few bytes."""
    attempt = checkpoints.prepare(places[0], seq).id
    for place in places:
        mine = record(place.rank, source=place.source)
        write_files(checkpoints.folder(attempt), mine)
        answered = checkpoints.answer(attempt, place, mine)
    assert answered.manifest is not None
    return answered.manifest


def flip(tmp_path: Path, manifest: Manifest) -> Path:
    """Change one bit of one shard."""
    shard = tmp_path / "checkpoints" / manifest.id / "__1_0.distcp"
    shard.write_bytes(bytes([shard.read_bytes()[0] ^ 1]) + shard.read_bytes()[1:])
    return shard


def test_the_list_names_every_committed_checkpoint_newest_first(command: Command, saved: list[Manifest]) -> None:
    done = command("list")
    assert (done.returncode, done.stderr) == (exit_codes.OK, "")
    assert [row.split()[2] for row in done.stdout.splitlines()] == [saved[1].id, saved[0].id]
    assert all(row.startswith("✓ complete") for row in done.stdout.splitlines())


def test_a_directory_says_the_same_without_redis(command: Command, saved: list[Manifest], tmp_path: Path) -> None:
    live = json.loads(command("list", "--json").stdout)
    done = command("list", "--json", "--dir", str(tmp_path / "checkpoints"), SUPERVISOR_REDIS="redis://127.0.0.1:1")
    assert done.returncode == exit_codes.OK
    assert json.loads(done.stdout)["items"] == live["items"]
    assert live["schema"] == "supervisor.checkpoints_list/1"
    assert [item["whole"] for item in live["items"]] == [True, True]


def test_a_run_without_a_checkpoint_has_an_empty_list(command: Command, store: RedisStore) -> None:
    Scene(store)
    assert command("list").stdout == "no checkpoint is committed\n"
    assert json.loads(command("list", "--json").stdout)["items"] == []
    done = command("show", "latest")
    assert done.returncode == exit_codes.USAGE
    assert "has no committed checkpoint" in done.stderr


def test_a_checkpoint_is_shown_with_its_agents_ranks_and_files(command: Command, saved: list[Manifest]) -> None:
    done = command("show", "latest")
    assert done.returncode == exit_codes.OK
    for part in (saved[1].id, "agent/a  17 steps committed", "goes on at step 10", "RANKS (2)", "__1_0.distcp"):
        assert part in done.stdout
    (item,) = json.loads(command("show", saved[0].id[:-4], "--json").stdout)["items"]
    assert (item["id"], item["agents"], item["ranks"][1]["rng"]) == (saved[0].id, {"agent/a": 17}, "rng-1")


def test_a_name_that_is_none_or_of_several_is_an_error_that_lists_them(command: Command, saved: list[Manifest]) -> None:
    several = command("show", "policy-")
    assert several.returncode == exit_codes.USAGE
    assert "is the beginning of 2 checkpoints" in several.stderr
    assert saved[1].id in command("show", "x").stderr


def test_verifying_names_each_damaged_file_and_is_1(command: Command, saved: list[Manifest], tmp_path: Path) -> None:
    assert command("verify").returncode == exit_codes.OK
    shard = flip(tmp_path, saved[1])
    (tmp_path / "checkpoints" / saved[1].id / "rng-0").unlink()
    done = command("verify")
    assert done.returncode == exit_codes.FOUND
    assert f"{shard} has SHA-256" in done.stdout
    assert "rng-0 is missing" in done.stdout
    assert f"verified  {saved[0].id}" in done.stdout
    (item,) = json.loads(command("verify", "latest", "--json").stdout)["items"]
    assert [one["path"] for one in item["damage"]] == ["rng-0", "__1_0.distcp"]
    assert command("verify", saved[0].id).returncode == exit_codes.OK


def test_a_list_sees_what_is_missing_and_only_a_verification_reads_content(
    command: Command, saved: list[Manifest], tmp_path: Path
) -> None:
    flip(tmp_path, saved[1])
    assert "damaged" not in command("list").stdout
    (tmp_path / "checkpoints" / saved[1].id / "rng-0").unlink()
    assert "damaged" in command("list").stdout


def test_a_manifest_that_cannot_be_read_is_4_and_named(command: Command, saved: list[Manifest], tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / saved[1].id / "manifest.json").write_bytes(b"{")
    done = command("list", "--dir", str(tmp_path / "checkpoints"))
    assert done.returncode == exit_codes.INCOMPLETE
    assert f"the manifest of {saved[1].id} cannot be read" in done.stderr
    assert saved[0].id in done.stdout


def test_files_on_another_host_are_4_and_nothing_is_called_damaged(
    command: Command, saved: list[Manifest], store: RedisStore
) -> None:
    for manifest in saved:
        store.command("HSET", store.key("manifest", manifest.id), "directory", "/nowhere/at/all")
    done = command("verify")
    assert done.returncode == exit_codes.INCOMPLETE
    assert "/nowhere/at/all is not on this host" in done.stderr
    assert "damaged" not in done.stdout


def test_a_directory_and_a_redis_at_once_or_one_that_is_not_there_are_usage_errors(command: Command, tmp_path: Path) -> None:
    assert command("list", "--dir", str(tmp_path), "--run", "x").returncode == exit_codes.USAGE
    done = command("list", "--dir", str(tmp_path / "nowhere"))
    assert done.returncode == exit_codes.USAGE
    assert "cannot be listed" in done.stderr


def test_a_run_that_has_ended_is_found_by_what_it_left_behind(command: Command, redis_url: str, tmp_path: Path) -> None:
    directory = tmp_path / "runs" / "night" / "checkpoints"
    with RedisStore.connect(redis_url, "night") as store:
        manifest = save(Checkpoints(store, directory), form(store, size=1), 3)
    done = command("list", "--run", "night", SUPERVISOR_REDIS="")
    assert done.returncode == exit_codes.OK
    assert manifest.id in done.stdout
    assert f"this is what lies in {directory}" in done.stderr
