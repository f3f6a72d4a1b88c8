"""The protocol of Rucio, beneath Rucio's own base class, against a real daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Daemon

pytest.importorskip("rucio", reason="rucio-clients is not here: it needs Python 3.10")

from rucio.common import exception

from longhaul.rucio import Default


@pytest.fixture(autouse=True)
def _config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "rucio.cfg"
    config.write_text("[client]\naccount = tests\n")
    monkeypatch.setenv("RUCIO_CONFIG", os.fspath(config))


@pytest.fixture
def protocol(place: Daemon) -> Any:
    return _protocol(place)


def _protocol(place: Daemon, **more: Any) -> Any:
    host, port = place.addr.split(":")
    attributes = {
        "scheme": "lh",
        "hostname": host,
        "port": int(port),
        "prefix": f"/data/{place.root.name}/",
        "impl": "longhaul.rucio.Default",
        "extended_attributes": None,
        "auth_token": None,
        **more,
    }
    settings = {"rse": "LONGHAUL", "deterministic": True, "lfn2pfn_algorithm": "hash", "protocols": [attributes]}
    return Default(attributes, settings)


def test_files_go_there_and_back_under_the_names_of_rucio(protocol: Any, place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"raw")
    protocol.connect()
    (pfn,) = protocol.lfns2pfns({"scope": "user.x", "name": "f"}).values()
    assert pfn.startswith(place.at("user/x/"))
    assert not protocol.exists(pfn)
    assert protocol.renaming is False
    protocol.put("f", pfn, source_dir=os.fspath(tmp_path), transfer_timeout=60)
    assert protocol.exists(pfn) and protocol.stat(pfn) == {"filesize": 3}
    protocol.get(pfn, os.fspath(tmp_path / "back"), transfer_timeout=60)
    assert (tmp_path / "back").read_bytes() == b"raw"
    assert protocol.parse_pfns([pfn])[pfn]["name"] == "f"
    protocol.close()


def test_a_path_becomes_a_pfn_beneath_the_prefix(protocol: Any, place: Daemon) -> None:
    assert protocol.path2pfn("x/y") == protocol.path2pfn("/x/y") == place.at("x/y")
    assert protocol.path2pfn(f"/data/{place.root.name}/x/y") == place.at("x/y")
    assert protocol.path2pfn(place.at("z")) == place.at("z")


def test_failures_are_those_of_rucio(protocol: Any, place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"f")
    for call in (protocol.stat, lambda path: protocol.get(path, os.fspath(tmp_path / "x"))):
        with pytest.raises(exception.SourceNotFound):
            call(place.at("none"))
    with pytest.raises(exception.SourceNotFound):
        protocol.put("none", place.at("f"), source_dir=os.fspath(tmp_path))
    protocol.put("f", place.at("f"), source_dir=os.fspath(tmp_path))
    with pytest.raises(exception.FileReplicaAlreadyExists):
        protocol.put("f", place.at("f"), source_dir=os.fspath(tmp_path))
    for refused in (lambda: protocol.delete(place.at("f")), lambda: protocol.rename(place.at("f"), place.at("g"))):
        with pytest.raises(exception.RSEOperationNotSupported, match="longhaul"):
            refused()
    assert (place.root / "f").exists()


def test_a_stranger_is_denied_and_an_absent_daemon_is_unavailable(place: Daemon, tmp_path: Path) -> None:
    stranger = _protocol(place, extended_attributes={"identity": os.fspath(tmp_path / "key")})
    with pytest.raises(exception.RSEAccessDenied):
        stranger.connect()
    away = _protocol(place, port=1, extended_attributes={"peer_key": place.key})
    with pytest.raises(exception.ServiceUnavailable):
        away.connect()


def test_a_transfer_that_takes_too_long_is_cancelled(place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(32 << 20))
    slow = _protocol(place, extended_attributes={"rate": 400_000})
    with pytest.raises(exception.ServiceUnavailable, match="cancelled"):
        slow.put("large", place.at("large"), source_dir=os.fspath(tmp_path), transfer_timeout=1)
    assert not (place.root / "large").exists()
