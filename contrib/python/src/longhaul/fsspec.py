"""`lh://` for fsspec: list, fetch and send files of daemons.

In: paths `lh://HOST[:PORT]/ROOT/PATH`. Out: what fsspec promises, as far as the program can do it;
for the rest a `NotImplementedError` that says so. Must not know how a transfer runs. Files are
opened through a temporary: whole files are fetched before they are read, and sent when they are
closed, so that no reader ever sees half of one.
"""

from __future__ import annotations

import datetime
import io
import os
import shutil
import tempfile
from typing import IO, Any, Callable, Dict, List, Optional, Tuple, Union, cast

from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.spec import AbstractFileSystem
from fsspec.utils import stringify_path

import longhaul

from ._exits import DeniedError, LonghaulError, NotFoundError
from ._transfer import Transfer

Info = Dict[str, Any]


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
            raise ValueError("a path begins with a host: lh://HOST/ROOT/PATH")
        return f"lh://{stripped}"

    # Looking.

    def _entries(self, path: str, most: Optional[int] = None) -> List[longhaul.Entry]:
        """What `longhaul ls` says of a path: its entries, or itself. At most `most` where given."""
        place = self._location(path)
        slash = "" if "/" in place[len("lh://") :] else "/"
        listing = longhaul._listing(place + slash, False, False, (), self._key_options)
        found: List[longhaul.Entry] = []
        with _told(place), listing:
            for event in listing:
                if isinstance(event, longhaul.Entry):
                    found.append(event)
                if most is not None and len(found) >= most:
                    listing.cancel()
                    break
        return found

    def _is_itself(self, path: str, entries: List[longhaul.Entry]) -> bool:
        """Whether a listing is of the path itself, a file or a link, and not of a directory."""
        parent, _, name = self._strip_protocol(path).rpartition("/")
        if len(entries) != 1 or entries[0].path != name or entries[0].kind in ("dir", "root") or "/" not in parent:
            return False
        # A directory may hold one file of its own name. Then there is something beneath that.
        try:
            self._entries(f"{parent}/{name}/{name}", most=1)
        except FileNotFoundError:
            return True
        except LonghaulError as error:
            if error.code == "in-the-way":
                return True  # A link: nothing is beneath it.
            raise
        return False

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> Any:
        """Lists a directory, or a file. `lh://HOST` lists the roots."""
        path = self._strip_protocol(path)
        entries = self._entries(path)
        if self._is_itself(path, entries):
            infos = [_info(path, entries[0])]
        else:
            infos = [_info(f"{path}/{entry.path}", entry) for entry in entries]
        return infos if detail else sorted(info["name"] for info in infos)

    def info(self, path: str, **kwargs: Any) -> Info:
        """Name, size, type and, of a file or a link, mode and time. It reads no directory whole."""
        path = self._strip_protocol(path)
        entries = self._entries(path, most=2)
        if self._is_itself(path, entries):
            return _info(path, entries[0])
        return {"name": path, "size": 0, "type": "directory"}

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
            raise NotImplementedError(f"longhaul ls does not tell the time of the directory lh://{path} itself")
        return cast(datetime.datetime, time)

    # Moving.

    def get_file(
        self, rpath: str, lpath: Any, callback: Callback = DEFAULT_CALLBACK, outfile: Any = None, **kwargs: Any
    ) -> None:
        """Fetches one file. What stands at `lpath` is replaced, once all of it is here."""
        if outfile is not None:
            raise NotImplementedError("longhaul writes a file under its name, and not to an open one")
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
        """Sends one file. `mode="create"` raises `FileExistsError` where one stands."""
        source = os.fspath(lpath)
        if os.path.isdir(source):
            self.makedirs(rpath, exist_ok=True)
            return
        if self.isdir(rpath):
            raise IsADirectoryError(f"a directory stands at lh://{self._strip_protocol(rpath)}")
        if_exists = "fail" if mode == "create" else "replace"
        self._run(longhaul.push, source, self._location(rpath), callback, _local(source), if_exists=if_exists)

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
        if compression is None and mode.replace("t", "") in ("w", "x"):
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
            return cast(IO[bytes], Outgoing(self, path, mode, autocommit))
        raise NotImplementedError(f"longhaul sends whole files: a file cannot be opened with mode '{mode}'")

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
    ) -> None:
        options = {**self._options, "if_exists": if_exists}
        with _told(what), command(source, dest, **options) as transfer:
            for event in transfer:
                if isinstance(event, longhaul.Progress):
                    callback.set_size(event.bytes_total)
                    callback.absolute_update(event.bytes_committed)

    # What the program cannot do.

    def _rm(self, path: str) -> None:
        raise NotImplementedError("longhaul deletes nothing at a daemon")

    def rm_file(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path)

    def rm(self, path: Any, recursive: bool = False, maxdepth: Optional[int] = None) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path)

    def rmdir(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        self._rm(path)

    def mv(self, path1: Any, path2: Any, **kwargs: Any) -> None:
        """Raises: the program renames nothing."""
        raise NotImplementedError("longhaul renames nothing at a daemon")

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """Raises: the program does not copy from daemon to daemon."""
        raise NotImplementedError("longhaul does not copy from daemon to daemon: get the file, then put it")

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """Makes an empty file, or one of no length. Raises for a new time alone."""
        if not truncate and self.exists(path):
            raise NotImplementedError("longhaul does not change the time of a file that stands")
        self.pipe_file(path, b"")

    def created(self, path: str) -> datetime.datetime:
        """Raises: the program does not tell it."""
        raise NotImplementedError("longhaul does not tell when a file was made")

    def sign(self, path: str, expiration: int = 100, **kwargs: Any) -> str:
        """Raises: there are no signed addresses."""
        raise NotImplementedError("longhaul has no signed addresses")


class Outgoing(io.BufferedRandom):
    """A file that is being written: a temporary of this host, which is sent as it is closed.

    A block that ends with an exception sends nothing, and neither does a file that is forgotten.
    """

    def __init__(self, fs: LonghaulFileSystem, path: str, mode: str, autocommit: bool) -> None:
        self._fs = fs
        self._mode = "create" if mode == "xb" else "overwrite"
        self._directory = tempfile.mkdtemp(prefix="longhaul-")
        self._temporary = os.path.join(self._directory, "file")
        self._settled = not autocommit
        self.path = path
        super().__init__(io.FileIO(self._temporary, "w+b"))

    def close(self) -> None:
        """Sends the file, and raises if that fails."""
        if self.closed:
            return
        super().close()
        if not self._settled:
            self.commit()

    def commit(self) -> None:
        """Sends what was written."""
        self._settled = True
        super().close()
        try:
            self._fs.put_file(self._temporary, self.path, mode=self._mode)
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def discard(self) -> None:
        """Forgets what was written."""
        self._settled = True
        super().close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        else:
            self.close()

    def __del__(self) -> None:
        self.discard()


class OutgoingText(io.TextIOWrapper):
    """Text that is being written. A block that ends with an exception sends nothing."""

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            cast(Outgoing, self.buffer).discard()
        else:
            self.close()


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


__all__: Tuple[str, ...] = ("LonghaulFileSystem", "Outgoing")
