"""What the tests stand on: the installed program, a daemon of their own, and programs that lie.

In: the environment that `contrib/python/test` makes. Out: fixtures. Must not know what is tested.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Iterator, NamedTuple

import pytest

import longhaul

REPOSITORY = Path(__file__).resolve().parents[3]
SLOW = 400_000
"""A rate at which a transfer of a `large` file is still running when it is looked at."""

if sys.version_info < (3, 10):
    # Rucio's clients need Python 3.10. What longhaul.rucio takes of them stands in for them here.
    sys.path.insert(0, str(Path(__file__).parent / "stand_in"))


class Daemon(NamedTuple):
    """A daemon on loopback that serves one root, `data`, to this user."""

    addr: str
    root: Path
    key: str
    socket: Path

    def at(self, path: str = "") -> str:
        return f"lh://{self.addr}/data/{path}"


def tree(top: Path) -> Path:
    """A directory `run7` with two files, of 100 and 5000 bytes."""
    (top / "run7" / "sub").mkdir(parents=True)
    (top / "run7" / "a").write_bytes(b"a" * 100)
    (top / "run7" / "sub" / "b").write_bytes(b"b" * 5000)
    return top / "run7"


def large(top: Path) -> Path:
    """A file that takes more than a minute at the rate `SLOW`."""
    path = top / "large"
    path.write_bytes(bytes(range(256)) * (1 << 17))
    return path


def pytest_configure() -> None:
    """A run that is ended from outside ends its daemon first."""

    def end(*_: object) -> None:
        pytest.exit("terminated", returncode=143)

    signal.signal(signal.SIGTERM, end)


@pytest.fixture(scope="session", autouse=True)
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No setting of this user reaches the tests, and none of theirs stays."""
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("LONGHAUL_"):
            del os.environ[name]
    os.environ["XDG_CONFIG_HOME"] = str(tmp_path_factory.mktemp("config"))
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(scope="session")
def daemon(_environment: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    home, program = tmp_path_factory.mktemp("daemon"), longhaul.find_binary()
    (home / "root").mkdir()

    def key(config_home: str) -> str:
        environment = {**os.environ, "XDG_CONFIG_HOME": config_home}
        made = subprocess.run([program, "key", "generate"], env=environment, check=True, capture_output=True, text=True)
        return made.stdout.strip()

    client, own = key(os.environ["XDG_CONFIG_HOME"]), key(str(home / "config"))
    config = home / "serve.toml"
    config.write_text(
        f"""
        listen = ["127.0.0.1:0"]
        state = "{home}/state"
        identity = "{home}/config/longhaul/identity"
        [[root]]
        name = "data"
        targets = ["{home}/root"]
        allow = ["read", "create", "modify"]
        [[client]]
        name = "tests"
        key = "{client}"
        roots = {{ data = ["read", "create", "modify"] }}
        """
    )
    config.chmod(0o600)
    log = (home / "log").open("wb")
    args = [program, "serve", "--config", str(config), "--json"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log) as process:
        try:
            assert process.stdout is not None
            listening = json.loads(process.stdout.readline() or b"{}")
            assert listening.get("type") == "listening", (home / "log").read_text()
            addr = listening["addr"]
            subprocess.run([program, "key", "trust", addr, own], check=True, capture_output=True)
            yield Daemon(addr, home / "root", own, home / "state" / "admin.sock")
        finally:
            process.terminate()
            process.wait(60)
            log.close()


@pytest.fixture
def place(daemon: Daemon, request: pytest.FixtureRequest) -> Daemon:
    """A directory of its own for each test: `at` and `root` begin there."""
    name = os.path.basename(tempfile.mkdtemp(prefix=f"{request.node.originalname}-", dir=daemon.root))

    class Beneath(Daemon):
        def at(self, path: str = "") -> str:
            return daemon.at(f"{name}/{path}")

    return Beneath(daemon.addr, daemon.root / name, daemon.key, daemon.socket)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a program of Python lines that stands in for longhaul."""

    def make(lines: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!{sys.executable}\nimport json, os, signal, sys, time\n{lines}\n")
        path.chmod(0o755)
        monkeypatch.setenv("LONGHAUL_BINARY", str(path))
        return path

    return make


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """No test leaves a thread or an open file behind."""

    def files() -> set[str]:
        names = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                names.append(os.readlink(f"/proc/self/fd/{fd}"))
        return {name for name in names if name.startswith("pipe:") or "longhaul" in name}

    before = files()
    yield
    left = [thread for thread in threading.enumerate() if thread.name == "longhaul-run"]
    # A run is over a moment before its thread is.
    for thread in left:
        thread.join(10)
    assert not [thread for thread in left if thread.is_alive()]
    gc.collect()
    assert files() <= before
