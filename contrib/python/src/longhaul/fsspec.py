"""`lh://` for fsspec: list, fetch and send files of daemons.

In: paths `lh://HOST[:PORT]/ROOT/PATH`. Out: what fsspec promises, as far as the program can do it;
for the rest a `NotImplementedError` that says what to do instead. Must not know how a transfer
runs. Files are opened through a temporary: whole files are fetched before they are read, and sent
when they are closed, so that no reader ever sees half of one.
"""

from __future__ import annotations

import datetime
import os
import tempfile
from typing import IO, Any, Callable, Dict, List, Optional, Tuple, Union, cast

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.core import get_compression
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path, tokenize

import longhaul

from . import _lookup
from ._exits import DeniedError, LonghaulError, NotFoundError
from ._outgoing import Outgoing, OutgoingText
from ._transfer import Transfer

Info = Dict[str, Any]

_NO_HOST = "a path begins with a host: lh://HOST/ROOT/PATH"


class LonghaulFileSystem(AbstractFileSystem):  # type: ignore[misc, unused-ignore]
    """Files of daemons, through the program `longhaul`.

    Storage options are the keyword arguments of `longhaul.push`, such as `identity`,
    `known_hosts`, `peer_key` or `rate`, and `extra_args`. Listings are not kept. Nothing is
    deleted, renamed or appended to, as the program does none of that.
    """

    protocol = "lh"
    root_marker = ""
    cachable = True

    def __init__(self, **storage_options: Any) -> None:
        super().__init__(**storage_options)
        ours = {
            name: value for name, value in storage_options.items() if name in longhaul.TransferOptions.__annotations__
        }
        keys = longhaul.KeyOptions.__annotations__
        extra = storage_options.get("extra_args", ())
        self._options: Dict[str, Any] = {**ours, "extra_args": extra}
        self._key_options: Dict[str, Any] = {name: value for name, value in ours.items() if name in keys}

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        """`HOST[:PORT]/ROOT/PATH`, without a slash at its end. Names are literal: `?` and `#` too."""
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        text = cast(str, stringify_path(path))
        return (text[len("lh://") :] if text.startswith("lh://") else text).rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> Dict[str, Any]:
        return {}

    def _location(self, path: str) -> str:
        stripped = self._strip_protocol(path)
        if not stripped:
            raise ValueError(_NO_HOST)
        return f"lh://{stripped}"

    # Looking.

    def _entries(self, path: str, recursive: bool = False) -> Tuple[List[longhaul.Entry], bool]:
        """What a listing says of a path, and whether that is the path itself: a file or a link."""
        place = self._location(path)
        with _told(place):
            found = _lookup.entries(place, self._key_options, recursive)
            return found, _lookup.is_itself(place, found, self._key_options)

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """Lists a directory, or a file. `lh://HOST` lists the roots."""
        path = self._strip_protocol(path)
        entries, itself = self._entries(path)
        infos = [_info(path if itself else f"{path}/{entry.path}", entry) for entry in entries]
        return infos if detail else sorted(info["name"] for info in infos)

    def info(self, path: str, **kwargs: Any) -> Info:
        """Name, size, type and, of a file or a link, mode and time. It reads no directory whole."""
        path = self._strip_protocol(path)
        place = self._location(path)
        with _told(place):
            entry = _lookup.look(place, self._key_options)
        return _directory(path) if entry is None else _info(path, entry)

    def find(
        self, path: str, maxdepth: Optional[int] = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """All that is beneath a path, by one listing where no `maxdepth` is given.

        A path that does not exist gives nothing, as fsspec has it. Any other failure raises.
        """
        if maxdepth is not None:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        path = self._strip_protocol(path)
        if not path:
            raise ValueError(_NO_HOST)
        try:
            entries, itself = self._entries(path, recursive=True)
        except FileNotFoundError:
            return {} if detail else []
        infos = [_info(path if itself else f"{path}/{entry.path}", entry) for entry in entries]
        if withdirs and not itself:
            infos.append(_directory(path))
        found = {info["name"]: info for info in infos if withdirs or info["type"] != "directory"}
        return {name: found[name] for name in sorted(found)} if detail else sorted(found)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether the path exists. Raises where that cannot be found out."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Whether the path is a directory."""
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def isfile(self, path: str) -> bool:
        """Whether the path is a file. A link is none: links are not followed."""
        try:
            return bool(self.info(path)["type"] == "file")
        except FileNotFoundError:
            return False

    def modified(self, path: str) -> datetime.datetime:
        """The time of the last change of a file or a link."""
        time = self.info(path).get("mtime")
        if time is None:
            raise NotImplementedError("longhaul lists a directory without its own time: ls() the one above it")
        return cast(datetime.datetime, time)

    def checksum(self, path: str) -> int:
        """A number of the size, mode and time of a file or a link, which is told to the second.

        Nobody reads the file for it: `Outgoing.checksums` has those of what was sent.
        """
        info = self.info(path)
        if info["type"] == "directory":
            raise NotImplementedError("longhaul has no checksum of a directory: ask for those of its files")
        return int(tokenize(info), 16)

    # Moving.

    def get_file(
        self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Fetches one file. What stands at `lpath` is replaced, once all of it is here."""
        if outfile is not None:
            raise NotImplementedError("longhaul writes no open file: give the name of a file to get")
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        target = os.fspath(lpath)
        if os.path.isdir(target):
            raise IsADirectoryError(f"a directory stands at '{target}'")
        self._run(longhaul.pull, rpath, _local(target), callback, self._location(rpath))

    def put_file(
        self, lpath: Any, rpath: str, callback: Callback = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """Sends one file, or what a link leads to. `mode="create"` raises `FileExistsError` where one stands."""
        source = os.fspath(lpath)
        if os.path.isdir(source):
            self.makedirs(rpath, exist_ok=True)
            return
        self._send(os.path.realpath(source), rpath, "fail" if mode == "create" else "replace", callback)

    def _send(self, source: str, rpath: str, if_exists: str, callback: Callback = DEFAULT_CALLBACK) -> Dict[str, str]:
        """Sends one file, and gives its checksums."""
        if self.isdir(rpath):
            raise IsADirectoryError(f"a directory stands at lh://{self._strip_protocol(rpath)}")
        return self._run(longhaul.push, source, self._location(rpath), callback, _local(source), if_exists)

    def get(
        self,
        rpath: Any,
        lpath: Any,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """Fetches files. One directory with `recursive` is one transfer, whatever it holds."""
        if recursive and maxdepth is None and isinstance(rpath, str) and not _has_magic(rpath) and self.isdir(rpath):
            dest = _dest(os.fspath(lpath), rpath, os.path.isdir(lpath))
            self._run(longhaul.pull, rpath, _local(dest), callback, self._location(rpath) + "/")
            return
        super().get(rpath, lpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    def put(
        self,
        lpath: Any,
        rpath: Any,
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: Optional[int] = None,
        **kwargs: Any,
    ) -> None:
        """Sends files. One directory with `recursive` is one transfer, whatever it holds."""
        plain = isinstance(rpath, str) and isinstance(lpath, (str, os.PathLike)) and not _has_magic(os.fspath(lpath))
        if recursive and maxdepth is None and plain and os.path.isdir(lpath):
            dest = _dest(rpath, os.fspath(lpath), self.isdir(rpath))
            source = _local(os.path.join(os.fspath(lpath), ""))
            self._run(longhaul.push, lpath, self._location(dest), callback, source)
            return
        super().put(lpath, rpath, recursive=recursive, callback=callback, maxdepth=maxdepth, **kwargs)

    def cat_file(self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any) -> bytes:
        """The content of a file, or a part of it. The whole file is fetched for either."""
        with self.open(path, "rb") as file:
            if start is None and end is None:
                return cast(bytes, file.read())
            size = file.seek(0, os.SEEK_END)
            first, last, _ = slice(start, end).indices(size)
            file.seek(first)
            return cast(bytes, file.read(max(last - first, 0)))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        """Sends bytes as one file."""
        with self.open(path, "wb" if mode == "overwrite" else "xb") as file:
            file.write(value)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Makes a directory and those above it, by sending an empty one."""
        if not exist_ok and self.exists(path):
            raise FileExistsError(f"lh://{self._strip_protocol(path)}")
        with tempfile.TemporaryDirectory(prefix="longhaul-") as empty:
            # Nothing is said of a directory of a user's: this one has no mode or time worth keeping.
            options = {**self._options, "preserve": "none"}
            with _told(path):
                longhaul.push(f"{empty}/", self._location(path), events=False, **options).result()

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Makes a directory. Those above it are made too."""
        self.makedirs(path, exist_ok=False)

    def open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        cache_options: Optional[Dict[str, Any]] = None,
        compression: Optional[str] = None,
        **kwargs: Any,
    ) -> Any:
        """Opens a file to read (`rb`, `r`) or to write (`wb`, `xb`, `w`, `x`)."""
        if mode.replace("t", "").replace("b", "") in ("w", "x"):
            # What compresses would end without closing the file, and nothing would be sent.
            if get_compression(path, compression) is not None:
                raise NotImplementedError(
                    "longhaul does not close what compresses into a file: use fsspec.open(..., compression=...)"
                )
            if "b" not in mode:
                words = {name: kwargs.pop(name) for name in ("encoding", "errors", "newline") if name in kwargs}
                return OutgoingText(self.open(path, mode.replace("t", "") + "b", block_size, **kwargs), **words)
        return super().open(path, mode, block_size, cache_options, compression, **kwargs)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[Dict[str, Any]] = None,
        **kwargs: Any,
    ) -> IO[bytes]:
        if mode == "rb":
            return self._open_to_read(path)
        if mode in ("wb", "xb"):
            if_exists = "fail" if mode == "xb" else "replace"
            return cast(IO[bytes], Outgoing(lambda file: self._send(file, path, if_exists), path, autocommit))
        raise NotImplementedError(
            f"longhaul sends whole files, and opens none with mode '{mode}': write all of it with mode 'wb'"
        )

    def _open_to_read(self, path: str) -> IO[bytes]:
        if self.isdir(path):
            raise IsADirectoryError(f"lh://{self._strip_protocol(path)}")
        with tempfile.TemporaryDirectory(prefix="longhaul-") as directory:
            name = os.path.join(directory, "file")
            self._run(longhaul.pull, path, _local(name), DEFAULT_CALLBACK, self._location(path))
            if os.path.islink(name):
                raise OSError(f"lh://{self._strip_protocol(path)} is a link, and links are not followed")
            # The open file outlives its name, and goes with it once it is closed.
            return open(name, "rb")

    def _run(
        self,
        command: Callable[..., Transfer],
        what: Any,
        dest: Union[str, bytes],
        callback: Callback,
        source: Union[str, bytes],
        if_exists: str = "replace",
    ) -> Dict[str, str]:
        """Runs a transfer to its end, and gives the checksums of its last file."""
        options = {**self._options, "if_exists": if_exists}
        checksums: Dict[str, str] = {}
        with _told(what), command(source, dest, **options) as transfer:
            for event in transfer:
                if isinstance(event, longhaul.Progress):
                    callback.set_size(event.bytes_total)
                    callback.absolute_update(event.bytes_committed)
                elif isinstance(event, longhaul.File):
                    told = {"b3": event.b3, "adler32": event.adler32, "crc32c": event.crc32c}
                    checksums = {name: value for name, value in told.items() if value is not None}
        return checksums

    # What the program cannot do.

    def _rm(self, path: str) -> None:
        raise NotImplementedError(
            f"longhaul deletes nothing at a daemon: remove '{self._strip_protocol(path)}' on that host"
        )

    def rm_file(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path[0] if isinstance(path, list) and path else path)

    def rmdir(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path)

    def mv(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Raises: the program renames nothing."""
        raise NotImplementedError(
            "longhaul renames nothing at a daemon: rename it on that host, or put it again under the other name"
        )

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Raises: the program does not copy from daemon to daemon."""
        raise NotImplementedError("longhaul does not copy from daemon to daemon: get the file, then put it")

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file, or one of no length. Raises for a new time alone."""
        if not truncate and self.exists(path):
            raise NotImplementedError(
                "longhaul does not change the time of a file that stands: put the file, which has its time"
            )
        self.pipe_file(path, b"")

    def created(self, path: str) -> datetime.datetime:
        """Raises: the program does not tell it."""
        raise NotImplementedError("longhaul does not tell when a file was made: modified() tells when it changed")

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Raises: there are no signed addresses."""
        raise NotImplementedError("longhaul has no signed addresses: the daemon's serve.toml gives a key its rights")


class _told:
    """Turns exceptions of longhaul into those that users of fsspec expect, with ours as cause."""

    def __init__(self, path: Any) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not isinstance(error, LonghaulError):
            return
        if isinstance(error, NotFoundError):
            raise FileNotFoundError(f"{self.path}: {error}") from error
        if isinstance(error, DeniedError):
            raise PermissionError(f"{self.path}: {error}") from error
        if error.code == "exists":
            raise FileExistsError(f"{self.path}: {error}") from error


def _directory(path: str) -> Info:
    return {"name": path, "size": 0, "type": "directory"}


def _info(path: str, entry: longhaul.Entry) -> Info:
    kinds = {"dir": "directory", "root": "directory", "symlink": "link", "special": "other"}
    info: Info = {"name": path, "size": entry.bytes, "type": kinds.get(entry.kind, entry.kind)}
    info["islink"] = entry.kind == "symlink"
    if entry.mode is not None:
        info["mode"] = int(entry.mode, 8)
    if entry.mtime is not None:
        info["mtime"] = datetime.datetime.fromisoformat(entry.mtime.replace("Z", "+00:00"))
    if entry.rights is not None:
        info["rights"] = list(entry.rights)
    return info


def _has_magic(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _dest(dest: str, source: str, stands: bool) -> str:
    """Where a directory lands, as fsspec has it: beneath a directory that stands, else as DEST.

    A slash at the end of the source means its contents.
    """
    if (stands or dest.endswith("/")) and not source.endswith("/"):
        return f"{dest.rstrip('/')}/{source.rstrip('/').rpartition('/')[2]}"
    return dest


def _local(path: Union[str, bytes]) -> bytes:
    """A word that is a path of this host, whatever colons it has. A slash at its end is kept."""
    word = os.fsencode(path)
    return word if word.startswith(b"/") else b"./" + word


__all__ = ["LonghaulFileSystem", "Outgoing", "OutgoingText"]
