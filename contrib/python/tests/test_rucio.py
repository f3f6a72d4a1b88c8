"""The protocol of Rucio, beneath Rucio's own base class, against a real daemon.

Rucio's clients need Python 3.10. On an older one tests/stand_in has their place, which is compared
with them where they are; there the tests fail, and do not pass over, if they are not installed.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any, List

import pytest
from conftest import Daemon
from rucio.common import exception
from rucio.rse.protocols.protocol import RSEProtocol

from longhaul.rucio import Default

only_with_rucio = pytest.mark.skipif(sys.version_info < (3, 10), reason="Rucio's clients need Python 3.10")


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
    return Default(attributes, _settings([attributes]))


def _settings(protocols: List[Any]) -> Any:
    return {
        "rse": "LONGHAUL",
        "deterministic": True,
        "lfn2pfn_algorithm": "hash",
        "verify_checksum": True,
        "sign_url": None,
        "protocols": protocols,
    }


def test_files_go_there_and_back_under_the_names_of_rucio(protocol: Any, place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"raw")
    protocol.connect()
    (pfn,) = protocol.lfns2pfns({"scope": "user.x", "name": "f"}).values()
    assert pfn.startswith(place.at("user/x/"))
    assert not protocol.exists(pfn)
    assert protocol.renaming is False
    protocol.put("f", pfn, source_dir=os.fspath(tmp_path), transfer_timeout=60)
    assert protocol.exists(pfn) and protocol.stat(pfn) == {"filesize": 3, "adler32": f"{zlib.adler32(b'raw'):08x}"}
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
    (place.root / "directory").mkdir()
    with pytest.raises(exception.SourceNotFound, match="no file"):
        protocol.stat(place.at("directory"))


def test_an_adler32_is_told_of_nothing_but_the_latest_upload(protocol: Any, place: Daemon, tmp_path: Path) -> None:
    for name in ("f", "g"):
        (tmp_path / name).write_bytes(name.encode())
        protocol.put(name, place.at(name), source_dir=os.fspath(tmp_path))
    assert protocol.stat(place.at("f")) == {"filesize": 1}
    assert protocol.stat(place.at("g")) == {"filesize": 1, "adler32": f"{zlib.adler32(b'g'):08x}"}
    # By its path as well, and not once the file is another one.
    assert protocol.stat("g")["adler32"]
    (place.root / "g").write_bytes(b"another")
    assert protocol.stat(place.at("g")) == {"filesize": 7}
    with pytest.raises(exception.FileReplicaAlreadyExists):
        protocol.put("g", place.at("g"), source_dir=os.fspath(tmp_path))
    (place.root / "g").write_bytes(b"x")
    assert protocol.stat(place.at("g")) == {"filesize": 1}


def test_a_daemon_that_knows_no_adler32_can_be_used_without(place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"f")
    without = _protocol(place, extended_attributes={"extra_checksum": "none"})
    without.put("f", place.at("f"), source_dir=os.fspath(tmp_path))
    assert without.stat(place.at("f")) == {"filesize": 1}


def test_it_needs_rucio_alone_and_no_fsspec() -> None:
    lines = "import sys; sys.modules['fsspec'] = None; sys.path[:0] = sys.argv[1:]; import longhaul.rucio"
    subprocess.run([sys.executable, "-W", "ignore", "-c", lines, *sys.path], check=True, timeout=120)


def test_a_link_is_uploaded_as_the_file_that_it_leads_to(protocol: Any, place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    protocol.put("link", place.at("link"), source_dir=os.fspath(tmp_path))
    assert not (place.root / "link").is_symlink() and (place.root / "link").read_bytes() == b"content"
    assert protocol.stat(place.at("link"))["filesize"] == 7


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


@only_with_rucio
def test_rucio_uploads_and_downloads_by_it(place: Daemon, tmp_path: Path) -> None:
    """As its clients do: another protocol of the RSE, here that of a mounted disk, deletes."""
    from rucio.rse import rsemanager

    off = dict.fromkeys(("read", "write", "delete", "third_party_copy_read", "third_party_copy_write"))
    ours = {
        "scheme": "lh",
        "hostname": place.addr.split(":")[0],
        "port": int(place.addr.split(":")[1]),
        "prefix": f"/data/{place.root.name}/",
        "impl": "longhaul.rucio.Default",
        "extended_attributes": None,
        "domains": {"wan": {**off, "read": 1, "write": 1}, "lan": off},
    }
    disk = {
        "scheme": "file",
        "hostname": "localhost",
        "port": 0,
        "prefix": f"{place.root}/",
        "impl": "rucio.rse.protocols.posix.Default",
        "extended_attributes": None,
        "domains": {"wan": {**off, "delete": 1}, "lan": off},
    }
    settings = _settings([ours, disk])
    (tmp_path / "f").write_bytes(b"raw")
    lfn = {"scope": "user.x", "name": "f", "filesize": 3, "adler32": f"{zlib.adler32(b'raw'):08x}"}
    done = rsemanager.upload(settings, [lfn], source_dir=os.fspath(tmp_path))
    assert done["success"] is True and done["pfn"].startswith(place.at("user/x/"))
    assert rsemanager.exists(settings, [lfn]) is True
    with pytest.raises(exception.FileReplicaAlreadyExists):
        rsemanager.upload(settings, [lfn], source_dir=os.fspath(tmp_path))
    rsemanager.create_protocol(settings, "read").get(done["pfn"], os.fspath(tmp_path / "back"), transfer_timeout=60)
    assert (tmp_path / "back").read_bytes() == b"raw"
    rsemanager.delete(settings, [lfn])
    assert rsemanager.exists(settings, [lfn]) is False


@only_with_rucio
def test_the_stand_in_is_as_rucio_is(place: Daemon) -> None:
    def load(name: str) -> Any:
        path = Path(__file__).parent / "stand_in" / "rucio" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(f"stand_in_{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    ours = load("common/exception")
    for name in (name for name in vars(ours) if isinstance(getattr(ours, name), type)):
        assert issubclass(getattr(exception, name), exception.RucioException), name

    stand_in = load("rse/protocols/protocol").RSEProtocol
    assert stand_in.__abstractmethods__ == RSEProtocol.__abstractmethods__
    for name in (name for name in vars(stand_in) if name == "__init__" or not name.startswith("_")):
        taken = [
            [(one.name, one.kind, one.default) for one in inspect.signature(getattr(base, name)).parameters.values()]
            for base in (stand_in, RSEProtocol)
        ]
        assert taken[0] == taken[1], name

    class Bare(Default, stand_in):  # type: ignore[misc, valid-type]
        __init__ = stand_in.__init__
        lfns2pfns, parse_pfns = stand_in.lfns2pfns, stand_in.parse_pfns

    host, port = place.addr.split(":")
    for prefix in ("/data/x/", "data/x"):
        attributes = {"scheme": "lh", "hostname": host, "port": int(port), "prefix": prefix, "auth_token": None}
        real = Default(dict(attributes), _settings([]))
        bare = Bare(dict(attributes), _settings([]))
        assert (bare.renaming, bare.overwrite, bare.auth_token) == (True, real.overwrite, real.auth_token)
        for lfn in (
            {"scope": "user.x", "name": "f"},
            {"scope": "mc.y", "name": "g"},
            {"scope": "s", "name": "h", "path": "a/h"},
        ):
            pfns = real.lfns2pfns(lfn)
            assert bare.lfns2pfns(lfn) == pfns
            assert bare.parse_pfns(list(pfns.values())) == real.parse_pfns(list(pfns.values()))
        for foreign in (f"lh://other:{port}/data/x/f", f"lh://{host}:1/data/x/f", f"lh://{host}:{port}/elsewhere/f"):
            for one in (bare, real):
                with pytest.raises(exception.RSEFileNameNotSupported):
                    one.parse_pfns(foreign)
