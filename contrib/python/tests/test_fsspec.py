"""`lh://` for fsspec, against a real daemon."""

from __future__ import annotations

import gc
import gzip
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List

import fsspec
import pytest
from conftest import Daemon
from fsspec.callbacks import Callback
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

import longhaul
from longhaul import _lookup
from longhaul.fsspec import LonghaulFileSystem, Outgoing


@pytest.fixture
def fs() -> LonghaulFileSystem:
    return LonghaulFileSystem(skip_instance_cache=True)


def _fill(root: Path) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a").write_bytes(b"0123456789")
    (root / "sub" / "b").write_bytes(b"b" * 5000)
    (root / "sub" / "deep" / "c").write_bytes(b"c")
    (root / "link").symlink_to("a")
    # Names that a listing by itself does not tell apart.
    (root / "same").mkdir()
    (root / "same" / "same").write_bytes(b"s")
    (root / "twice" / "twice").mkdir(parents=True)
    (root / "empty").mkdir()


def test_fsspec_finds_it_by_its_protocol(place: Daemon) -> None:
    _fill(place.root)
    with fsspec.open(place.at("a"), "rb") as file:
        assert file.read() == b"0123456789"
    assert isinstance(fsspec.filesystem("lh"), LonghaulFileSystem)
    with fsspec.open(place.at("a"), "r", peer_key=place.key, known_hosts="none") as file:
        assert file.read() == "0123456789"


@pytest.mark.parametrize(
    ("path", "kind", "size"),
    [
        ("a", "file", 10),
        ("sub", "directory", 0),
        ("sub/", "directory", 0),
        ("sub/b", "file", 5000),
        ("link", "link", 0),
        ("same", "directory", 0),
        ("same/same", "file", 1),
        ("twice", "directory", 0),
        ("twice/twice", "directory", 0),
        ("empty", "directory", 0),
        ("", "directory", 0),
    ],
)
def test_info_tells_files_from_directories(path: str, kind: str, size: int, fs: Any, place: Daemon) -> None:
    _fill(place.root)
    info = fs.info(place.at(path))
    assert (info["type"], info["size"]) == (kind, size)
    assert info["name"] == place.at(path).rstrip("/")[len("lh://") :]
    assert (fs.isfile(place.at(path)), fs.isdir(place.at(path))) == (kind == "file", kind == "directory")
    assert fs.exists(place.at(path))
    if kind == "file":
        assert info["mode"] & 0o600 == 0o600 and fs.modified(place.at(path)).year >= 2020


def test_roots_are_listed_as_directories(fs: Any, place: Daemon) -> None:
    (root,) = fs.ls(f"lh://{place.addr}")
    assert (root["type"], root["name"], root["rights"]) == (
        "directory",
        f"{place.addr}/data",
        ["read", "create", "modify"],
    )
    assert fs.isdir(f"lh://{place.addr}") and fs.isdir(f"lh://{place.addr}/data")
    (place.root / "f").touch()
    name = f"{place.addr}/data/{place.root.name}/f"
    assert name in fs.find(f"lh://{place.addr}") and name in fs.find(f"lh://{place.addr}/data/")


def test_listings_walk_and_glob(fs: Any, place: Daemon) -> None:
    _fill(place.root)
    top = place.at().rstrip("/")[len("lh://") :]
    assert fs.ls(place.at(), detail=False) == [f"{top}/{n}" for n in ("a", "empty", "link", "same", "sub", "twice")]
    assert fs.ls(place.at("a"), detail=False) == [f"{top}/a"]
    assert fs.find(place.at("sub")) == [f"{top}/sub/b", f"{top}/sub/deep/c"]
    assert fs.glob(place.at("sub/*")) == [f"{top}/sub/b", f"{top}/sub/deep"]
    assert fs.du(place.at("sub")) == 5001


def test_find_is_one_listing_and_finds_what_walking_finds(
    fs: Any, place: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(place.root)
    listings: List[str] = []
    entries = _lookup.entries
    monkeypatch.setattr(_lookup, "entries", lambda *given, **more: listings.append(given[0]) or entries(*given, **more))
    for path in ("", "sub", "sub/b", "link", "same", "same/same", "twice", "empty", "none"):
        for withdirs in (False, True):
            walked = AbstractFileSystem.find(fs, place.at(path), withdirs=withdirs, detail=True)
            listings.clear()
            found = fs.find(place.at(path), withdirs=withdirs, detail=True)
            assert len(listings) <= 2, path
            assert list(found) == list(walked) == fs.find(place.at(path), withdirs=withdirs), path
            # fsspec tells nothing of a file that is itself the path.
            assert all(found[name] == walked[name] for name in found if walked[name]), path
    assert len(fs.find(place.at("sub"), maxdepth=1)) == 1
    assert fs.glob(place.at("**/c")) == [place.at("sub/deep/c")[len("lh://") :]]


def test_find_does_not_take_what_is_denied_for_nothing(fs: Any, place: Daemon) -> None:
    with pytest.raises(PermissionError):
        fs.find(f"lh://{place.addr}/another/x")
    with pytest.raises(ValueError, match="host"):
        fs.find("lh://")


def test_what_is_missing_or_denied_is_said_as_python_does(fs: Any, place: Daemon, tmp_path: Path) -> None:
    assert not fs.exists(place.at("none")) and not fs.isdir(place.at("none")) and not fs.isfile(place.at("none/x"))
    for call in (fs.info, fs.ls, fs.cat_file):
        with pytest.raises(FileNotFoundError) as caught:
            call(place.at("none"))
        assert isinstance(caught.value.__cause__, longhaul.NotFoundError)
    with pytest.raises(PermissionError):
        fs.ls(f"lh://{place.addr}/another/x")
    with pytest.raises(ValueError, match="host"):
        fs.ls("lh://")
    with pytest.raises(longhaul.TemporaryError):
        LonghaulFileSystem(peer_key=place.key, skip_instance_cache=True).ls("lh://127.0.0.1:1/data")


def test_reading_takes_whole_files_and_parts(fs: Any, place: Daemon) -> None:
    _fill(place.root)
    assert fs.cat(place.at("a")) == b"0123456789"
    assert fs.cat_file(place.at("a"), 2, 5) == b"234"
    assert fs.cat_file(place.at("a"), start=-3) == b"789"
    assert fs.cat_file(place.at("a"), 5, 2) == b""
    assert fs.head(place.at("a"), 3) == b"012"
    with fs.open(place.at("a")) as file:
        assert file.seek(4) == 4 and file.read(2) == b"45"
    with pytest.raises(IsADirectoryError):
        fs.open(place.at("sub"))
    with pytest.raises(OSError, match="link"):
        fs.open(place.at("link"))


def test_writing_sends_the_file_when_it_is_closed(fs: Any, place: Daemon) -> None:
    with fs.open(place.at("new/w"), "wb") as file:
        file.write(b"one")
        assert not (place.root / "new" / "w").exists()
    assert (place.root / "new" / "w").read_bytes() == b"one"
    with fs.open(place.at("new/w"), "w") as file:
        file.write("tw\u00f6")
    assert (place.root / "new" / "w").read_text() == "tw\u00f6"
    fs.pipe({place.at("p"): b"piped"})
    fs.touch(place.at("t"))
    assert (place.root / "p").read_bytes() == b"piped" and (place.root / "t").read_bytes() == b""
    with pytest.raises(FileExistsError):
        fs.pipe_file(place.at("p"), b"again", mode="create")
    with pytest.raises(IsADirectoryError):
        fs.pipe_file(place.at("new"), b"x")


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_a_block_that_raises_sends_nothing(mode: str, fs: Any, place: Daemon) -> None:
    with pytest.raises(ZeroDivisionError), fs.open(place.at("half"), mode) as file:
        file.write(b"half" if mode == "wb" else "half")
        raise ZeroDivisionError
    assert not (place.root / "half").exists()


def test_a_transaction_sends_all_files_at_its_end(fs: Any, place: Daemon) -> None:
    with fs.transaction:
        with fs.open(place.at("x"), "wb") as file:
            file.write(b"x")
        assert not (place.root / "x").exists()
    assert (place.root / "x").read_bytes() == b"x"
    with pytest.raises(ZeroDivisionError), fs.transaction:
        with fs.open(place.at("y"), "wb") as file:
            file.write(b"y")
        raise ZeroDivisionError
    assert not (place.root / "y").exists()


@pytest.mark.parametrize("mode", ["wb", "w"])
def test_what_stood_stays_where_a_block_raises_or_a_file_is_forgotten(mode: str, fs: Any, place: Daemon) -> None:
    (place.root / "kept").write_bytes(b"kept")
    text: Any = b"half" if mode == "wb" else "half"
    with pytest.raises(ZeroDivisionError), fs.open(place.at("kept"), mode) as file:
        file.write(text)
        raise ZeroDivisionError
    file = fs.open(place.at("kept"), mode)
    file.write(text)
    del file
    gc.collect()
    file = fs.open(place.at("kept"), mode)
    file.write(text)
    file.discard()
    file.close()
    assert (place.root / "kept").read_bytes() == b"kept"


@pytest.mark.parametrize("mode", ["xb", "x"])
def test_a_file_that_could_not_be_sent_is_kept_and_sent_by_another_try(mode: str, fs: Any, place: Daemon) -> None:
    file = fs.open(place.at("f"), mode)
    file.write(b"mine" if mode == "xb" else "mine")
    (place.root / "f").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        file.close()
    with pytest.raises(FileExistsError):
        file.commit()
    assert file.closed and (place.root / "f").read_bytes() == b"theirs"
    (place.root / "f").unlink()
    file.commit()
    assert (place.root / "f").read_bytes() == b"mine"
    with pytest.raises(ValueError, match="nothing is left"):
        file.commit()


def test_no_temporary_stays(fs: Any, place: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fs.pipe_file(place.at("f"), b"f")
    with fs.open(place.at("f"), "w") as file:
        file.write("g")
    fs.open(place.at("f"), "wb").discard()
    with pytest.raises(FileExistsError):
        fs.pipe_file(place.at("f"), b"h", mode="create")
    with pytest.raises(LookupError):
        fs.open(place.at("f"), "w", encoding="none")
    assert fs.cat_file(place.at("f")) == b"g"
    with pytest.raises(FileNotFoundError):
        fs.cat_file(place.at("none"))
    del file
    gc.collect()
    assert os.listdir(tmp_path) == []


def test_a_disk_of_this_host_that_is_full_sends_nothing(place: Daemon) -> None:
    sent: List[str] = []
    file = Outgoing(lambda name: sent.append(name) or {}, "f")  # type: ignore[func-returns-value]
    file.raw.close()
    with open("/dev/full", "w+b", buffering=0) as full:
        io.BufferedRandom.__init__(file, full)
        file.write(b"lost")
        with pytest.raises(OSError, match="space"):
            file.close()
        with pytest.raises(ValueError, match="nothing is left"):
            file.commit()
    assert sent == []


def test_a_forked_process_leaves_the_files_of_its_parent_alone() -> None:
    lines = """
import os, sys
from longhaul._outgoing import Outgoing
def send(name):
    print(open(name).read(), flush=True)
    return {}
file = Outgoing(send, "f")
file.write(b"whole")
if os.fork() == 0:
    sys.exit(0)
os.wait()
file.close()
"""
    args = [sys.executable, "-W", "ignore", "-c", lines]
    done = subprocess.run(args, capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("whole\n", "")


def test_what_compresses_goes_through_fsspec_open(fs: Any, place: Daemon) -> None:
    for mode in ("wb", "w"):
        with pytest.raises(NotImplementedError, match=r"fsspec\.open"):
            fs.open(place.at("f.gz"), mode, compression="infer")
    with fsspec.open(place.at("f.gz"), "wt", compression="infer") as file:
        file.write("text")
    assert gzip.decompress((place.root / "f.gz").read_bytes()) == b"text"
    with fsspec.open(place.at("f.gz"), "rt", compression="gzip") as file:
        assert file.read() == "text"


def test_checksums_of_what_was_sent_are_told(place: Daemon) -> None:
    fs = LonghaulFileSystem(extra_checksum=["adler32", "crc32c"], skip_instance_cache=True)
    with fs.open(place.at("f"), "w") as file:
        file.write("123456789")
    assert file.checksums == {"b3": file.checksums["b3"], "adler32": "091e01de", "crc32c": "e3069283"}
    assert len(file.checksums["b3"]) == 64
    with fs.open(place.at("g"), "wb") as file:
        assert file.checksums == {}
    assert file.checksums["adler32"] == "00000001"


def test_a_checksum_changes_with_the_file(fs: Any, place: Daemon) -> None:
    (place.root / "f").write_bytes(b"one")
    first = fs.checksum(place.at("f"))
    assert first == fs.checksum(place.at("f"))
    (place.root / "f").write_bytes(b"three")
    assert fs.checksum(place.at("f")) != first
    with pytest.raises(NotImplementedError, match="directory"):
        fs.checksum(place.at(""))


class _Noted(Callback):  # type: ignore[misc, unused-ignore]
    def call(self, *_: Any, **__: Any) -> None:
        seen.append((self.size, self.value))


seen: List[Any] = []


def test_callbacks_are_told_of_progress(fs: Any, place: Daemon, tmp_path: Path) -> None:
    _fill(place.root)
    seen.clear()
    fs.get_file(place.at("sub/b"), tmp_path / "b", callback=_Noted())
    assert seen[-1] == (5000, 5000)
    seen.clear()
    fs.put_file(tmp_path / "b", place.at("b2"), callback=_Noted())
    assert seen[-1] == (5000, 5000) and (place.root / "b2").read_bytes() == b"b" * 5000
    # A directory counts the bytes of all its files, and a list its files.
    seen.clear()
    fs.get(place.at("sub"), f"{tmp_path}/sub", recursive=True, callback=_Noted())
    assert seen[-1] == (5001, 5001)
    seen.clear()
    fs.put(f"{tmp_path}/sub", place.at("sub2"), recursive=True, callback=_Noted())
    assert seen[-1] == (5001, 5001) and (place.root / "sub2" / "deep" / "c").exists()
    seen.clear()
    fs.put([f"{tmp_path}/b", f"{tmp_path}/sub/b"], [place.at("l/1"), place.at("l/2")], callback=_Noted())
    assert seen[-1] == (2, 2)


def _tree(top: Path) -> Dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("dest", ["there", "new", "there/", "new/"])
def test_directories_land_where_fsspec_puts_them(slash: str, dest: str, fs: Any, place: Daemon, tmp_path: Path) -> None:
    """As with fsspec's own file system of this host in the daemon's place."""
    source = tmp_path / "run7"
    (source / "sub").mkdir(parents=True)
    (source / "a").write_bytes(b"a")
    (source / "sub" / "b").write_bytes(b"b")
    for top in ("plain", "got", "plain-got"):
        (tmp_path / top / "there").mkdir(parents=True)
    (place.root / "there").mkdir()

    local = LocalFileSystem(skip_instance_cache=True)
    local.put(f"{source}{slash}", f"{tmp_path}/plain/{dest}", recursive=True)
    fs.put(f"{source}{slash}", place.at(dest), recursive=True)
    assert _tree(place.root) == _tree(tmp_path / "plain") != {}

    local.get(f"{source}{slash}", f"{tmp_path}/plain-got/{dest}", recursive=True)
    fs.put(f"{source}/", place.at("from/run7"), recursive=True)
    fs.get(place.at("from/run7") + slash, f"{tmp_path}/got/{dest}", recursive=True)
    assert _tree(tmp_path / "got") == _tree(tmp_path / "plain-got") != {}


def test_lists_and_patterns_go_file_by_file(fs: Any, place: Daemon, tmp_path: Path) -> None:
    _fill(place.root)
    fs.get(place.at("su*/b"), f"{tmp_path}/matched/")
    assert _tree(tmp_path / "matched") == {"b": b"b" * 5000}
    fs.put([f"{tmp_path}/matched/b"], [place.at("up/b")])
    assert (place.root / "up" / "b").exists()
    fs.get_file(place.at("a"), f"{tmp_path}/-:a")
    assert Path(f"{tmp_path}/-:a").read_bytes() == b"0123456789"


def test_what_stands_is_replaced_though_size_and_time_are_the_same(fs: Any, place: Daemon, tmp_path: Path) -> None:
    for path, content in ((tmp_path / "f", b"new"), (place.root / "f", b"old")):
        path.write_bytes(content)
        os.utime(path, (10**9, 10**9))
    fs.put_file(tmp_path / "f", place.at("f"))
    assert (place.root / "f").read_bytes() == b"new"


def test_a_link_is_put_as_the_file_that_it_leads_to(fs: Any, place: Daemon, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    fs.put(f"{tmp_path}/link", place.at("link"))
    assert not (place.root / "link").is_symlink() and (place.root / "link").read_bytes() == b"content"


def test_caches_of_fsspec_stand_on_it(place: Daemon, tmp_path: Path) -> None:
    _fill(place.root)
    for cache in ("simplecache", "filecache"):
        options = {cache: {"cache_storage": f"{tmp_path}/{cache}"}}
        for _ in range(2):
            with fsspec.open(f"{cache}::{place.at('a')}", "rb", **options) as file:
                assert file.read() == b"0123456789"


def test_directories_are_made(fs: Any, place: Daemon) -> None:
    fs.mkdir(place.at("d/e"))
    assert (place.root / "d" / "e").is_dir()
    fs.makedirs(place.at("d/e"), exist_ok=True)
    with pytest.raises(FileExistsError):
        fs.mkdir(place.at("d/e"))


def test_the_rest_says_that_it_cannot_be_done_and_what_to_do_instead(fs: Any, place: Daemon) -> None:
    _fill(place.root)
    at = place.at
    calls = [
        lambda: fs.rm(at("a")),
        lambda: fs.rm_file(at("a")),
        lambda: fs.rm(at("sub"), recursive=True),
        lambda: fs.rmdir(at("empty")),
        lambda: fs.mv(at("a"), at("z")),
        lambda: fs.rename(at("a"), at("z")),
        lambda: fs.copy(at("a"), at("z")),
        lambda: fs.open(at("a"), "ab"),
        lambda: fs.open(at("a"), "r+b"),
        lambda: fs.touch(at("a"), truncate=False),
        lambda: fs.created(at("a")),
        lambda: fs.modified(at("sub")),
        lambda: fs.sign(at("a")),
        lambda: fs.checksum(at("sub")),
        lambda: fs.get_file(at("a"), "a", outfile=io.BytesIO()),
        lambda: fs.open(at("a"), "wb", compression="gzip"),
    ]
    for number, call in enumerate(calls):
        with pytest.raises(NotImplementedError, match=r"^longhaul .*: ."):
            call()
            pytest.fail(f"call {number} did something")
    assert (place.root / "a").exists()
