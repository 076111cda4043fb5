"""Uses the wheel as a user would: in an empty environment, beside the other package that is called supervisor.

    python tests/smoke/wheel.py dist

The wheel has to have been built from the sdist (`python -m build` does), so that this also proves the sdist whole. Only
the package index is needed; versions are those of constraints/. A Redis server is borrowed from the calling environment.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

from unknot.supervisor.store.embedded import start_redis

ROOT = Path(__file__).parents[2]
FOLDERS = ("graph", "recovery", "supervisor", "integrations")
OTHER_SUPERVISOR = "supervisor==4.3.0"
LIMIT_S = 600


def main() -> int:
    dist = Path(sys.argv[1] if len(sys.argv) > 1 else "dist").resolve()
    (wheel,) = dist.glob("unknot-*.whl")
    (_sdist,) = dist.glob("unknot-*.tar.gz")
    check_contents(wheel)
    check_metadata(wheel)
    with tempfile.TemporaryDirectory(prefix="unknot-smoke-") as folder:
        site = Empty(Path(folder))
        site.install(str(wheel), OTHER_SUPERVISOR)
        check_imports(site)
        check_scripts_in_redis(site, Path(folder) / "redis")
        check_missing_extra(site)
        site.install(f"{wheel}[cli]")
        check_command(site)
    return 0


class Empty:
    """A virtual environment outside the repository, with nothing but pip."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "venv" / "bin"
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=LIMIT_S)

    def install(self, *what: str) -> None:
        """With the versions that constraints/ names."""
        pins = ROOT / "constraints" / f"{sys.version_info[0]}.{sys.version_info[1]}.txt"
        pip = [str(self.bin / "pip"), "--disable-pip-version-check", "install", "--quiet", "--constraint", str(pins)]
        subprocess.run([*pip, *what], check=True, timeout=LIMIT_S)

    def run(self, name: str, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """A program of the environment, started in its own folder with none of the caller's settings."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "SUPERVISOR_", "VIRTUAL_ENV"))}
        return subprocess.run(
            [str(self.bin / name), *arguments], cwd=self.folder, env={**kept, **environ}, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    def python(self, code: str, **environ: str) -> str:
        """What the code printed; it has to end well."""
        done = self.run("python", "-W", "error", "-c", code, **environ)
        expect(done.returncode == 0, "python ends well", done.stdout + done.stderr)
        return done.stdout


def expect(holds: bool, what: str, seen: object = "") -> None:
    """End with exit status 1 unless `holds`."""
    if not holds:
        print(f"FAILED: {what}\n{seen}")
        sys.exit(1)


def check_contents(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"unknot/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for pattern in ("*.py", "*.lua")
        for path in (ROOT / folder).rglob(pattern)
    } | {"unknot/__init__.py", "unknot/py.typed"}
    found = {name for name in packed if not name.startswith("unknot-")}
    expect(found == wanted, "the wheel holds exactly the code", sorted(found ^ wanted))
    lua = sum(name.endswith(".lua") for name in found)
    print(f"contents: {len(found)} files, {lua} Lua scripts, py.typed, nothing outside unknot/")


def check_metadata(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    told = Parser().parsestr(archive.read(name).decode())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(told.get_all("Provides-Extra", []))
    expect(extras == set(project["optional-dependencies"]), "every extra is offered", extras)
    base = {r for r in told.get_all("Requires-Dist", []) if "extra ==" not in r}
    expect(base == set(project["dependencies"]), "base dependencies are those of pyproject.toml", base)
    expect("License-File" in told and bool(told.get_payload()), "license and description are in", told.keys())
    print(f"metadata: version {told['Version']}, extras {', '.join(sorted(extras))}")


def check_imports(site: Empty) -> None:
    ours = site.python("import unknot, unknot.supervisor as s; print(unknot.__version__, s.__name__, s.__file__)").split()
    expect(ours[1] == "unknot.supervisor" and "site-packages" in ours[2], "unknot.supervisor is ours", ours)
    theirs = site.run("python", "-c", "import supervisor, supervisor.options as o; print(o.VERSION, supervisor.__name__)")
    expect(theirs.stdout.split() == ["4.3.0", "supervisor"], "import supervisor is theirs", theirs)
    for name in ("graph", "recovery", "integrations"):
        found = site.python(f"import importlib.util as u; print(u.find_spec({name!r}))")
        expect(found.strip() == "None", f"{name} is no package of its own", found)
    for program in ("supervisord", "supervisorctl"):
        expect((site.bin / program).exists(), f"{program} of the other package is still there")
    names = "Lock, Mailbox, Weights, external, progress, RunBusy, UnknotError"
    public = f"import unknot; from unknot import {names}; print(len(unknot.__all__))"
    print(f"imports: ours beside supervisor 4.3.0; {site.python(public).strip()} public names")


def check_scripts_in_redis(site: Empty, directory: Path) -> None:
    code = (
        "import os\n"
        "from unknot.supervisor.store.redis_store import RedisStore\n"
        "from unknot.supervisor.store.scripts import load_script, script_names\n"
        "with RedisStore.connect(os.environ['URL'], 'smoke') as store:\n"
        "    for name in script_names():\n"
        "        script = load_script(name)\n"
        "        assert store.command('SCRIPT', 'LOAD', script.text).decode() == script.sha, name\n"
        "print(len(script_names()))"
    )
    with start_redis(directory) as server:
        print(f"scripts: Redis compiled all {site.python(code, URL=server.url).strip()} of the wheel")


def check_missing_extra(site: Empty) -> None:
    done = site.run("supervisor", "status")
    lines = done.stderr.splitlines()
    expect(done.returncode == 2 and len(lines) == 1, "a missing extra is one line, exit 2", done)
    expect("unknot[cli]" in lines[0], "the line says what to install", lines)
    print(f"without the extra: {lines[0]}")


def check_command(site: Empty) -> None:
    version = site.run("supervisor", "--version")
    expect(version.returncode == 0 and version.stdout.startswith("supervisor "), "supervisor --version", version)
    status = site.run("supervisor", "status", SUPERVISOR_RUN_DIR=str(site.folder), XDG_RUNTIME_DIR=str(site.folder))
    expect(status.returncode == 3, "supervisor status without a run ends with 3", status)
    print(f"command: {version.stdout.strip()}; without a run: {status.stderr.splitlines()[0]}")


if __name__ == "__main__":
    sys.exit(main())
