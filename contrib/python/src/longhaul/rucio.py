"""A protocol of Rucio: `impl` is `longhaul.rucio.Default`, `scheme` is `lh`.

In: physical file names `lh://HOST:PORT/ROOT/PATH`. Out: Rucio's answers and exceptions. Must not
know how a transfer runs. The prefix of the RSE begins with the name of a root, and uploads go
straight to their final names: the program shows no file there that is not whole. It deletes and
renames nothing, so an RSE says `"delete": null` for this protocol and names another for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, Optional, Tuple

from rucio.common import exception
from rucio.rse.protocols import protocol

import longhaul

from . import _lookup


class Default(protocol.RSEProtocol):  # type: ignore[misc, unused-ignore]
    """Access to an RSE through a daemon of longhaul.

    `extended_attributes` of the protocol may have keyword arguments of `longhaul.push`, such as
    `identity`, `known_hosts`, `peer_key` or `rate`.
    """

    def __init__(self, protocol_attr: Dict[str, Any], rse_settings: Dict[str, Any], logger: Any = None) -> None:
        more = {} if logger is None else {"logger": logger}
        super().__init__(protocol_attr, rse_settings, **more)
        # A file has its final name only once it is whole: the detour by a temporary name, which
        # would take a rename, is not needed.
        self.renaming = False
        given = protocol_attr.get("extended_attributes") or {}
        self._options: Dict[str, Any] = {
            name: given[name] for name in longhaul.TransferOptions.__annotations__ if name in given
        }
        self._keys = {name: self._options[name] for name in longhaul.KeyOptions.__annotations__ if name in given}
        # The name, length and Adler-32 of the latest upload, for the `stat` that follows it.
        self._uploaded: Optional[Tuple[str, int, str]] = None

    def path2pfn(self, path: str) -> str:
        """The physical file name of a path beneath the prefix."""
        if path.startswith("lh://"):
            return path
        prefix = "/" + str(self.attributes["prefix"]).strip("/")
        path = path if path.startswith(prefix + "/") else f"{prefix}/{path.lstrip('/')}"
        return self._host() + path

    def _host(self) -> str:
        host, port = self.attributes["hostname"], self.attributes.get("port")
        return f"lh://{host}:{port}" if port else f"lh://{host}"

    def connect(self) -> None:
        """Asks the daemon for its roots: it must be there, and know this key."""
        with _told(exception.RSEAccessDenied):
            _lookup.entries(self._host(), self._keys)

    def close(self) -> None:
        """Does nothing: each call has its own connection."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        with _told(exception.ServiceUnavailable):
            try:
                self._look(path)
            except longhaul.NotFoundError:
                return False
        return True

    def stat(self, path: str) -> Dict[str, Any]:
        """The size as `filesize` and, of the file that this object sent last, `adler32`.

        The receiver computed that of the bytes that it wrote. A daemon tells none of other files.
        """
        with _told(exception.ServiceUnavailable):
            entry = self._look(path)
        if entry is None or entry.kind != "file":
            raise exception.SourceNotFound(f"{path} is no file")
        told: Dict[str, Any] = {"filesize": entry.bytes}
        if self._uploaded is not None and self._uploaded[:2] == (self.path2pfn(path), entry.bytes):
            told["adler32"] = self._uploaded[2]
        return told

    def _look(self, path: str) -> Optional[longhaul.Entry]:
        return _lookup.look(self.path2pfn(path).rstrip("/"), self._keys)

    def get(self, path: str, dest: str, transfer_timeout: Optional[float] = None) -> None:
        """Fetches one file. `dest` appears once it is whole and verified."""
        with _told(exception.ServiceUnavailable):
            local = os.path.join(os.curdir, dest)
            _wait(
                longhaul.pull(self.path2pfn(path), local, events=False, **{**self._options, "if_exists": "replace"}),
                transfer_timeout,
            )

    def put(
        self, source: str, target: str, source_dir: Optional[str] = None, transfer_timeout: Optional[float] = None
    ) -> None:
        """Sends one file. `target` appears once it is whole, verified and on the disk."""
        local = os.path.join(os.curdir, source_dir or "", source)
        if not os.path.exists(local):
            raise exception.SourceNotFound(f"'{local}' does not exist")
        pfn = self.path2pfn(target)
        self._uploaded = None
        options = {"extra_checksum": "adler32", **self._options, "if_exists": "fail"}
        with _told(exception.DestinationNotAccessible):
            # A link is sent as what it leads to: a replica has the content.
            transfer = longhaul.push(os.path.realpath(local), pfn, **options)
            _wait(transfer, transfer_timeout)
        for event in transfer:
            if isinstance(event, longhaul.File) and event.adler32 is not None:
                self._uploaded = (pfn, event.bytes, event.adler32)

    def delete(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        raise exception.RSEOperationNotSupported("longhaul deletes nothing: give the RSE another protocol for 'delete'")

    def rename(self, path: str, new_path: str) -> None:
        """Raises: the program renames nothing."""
        raise exception.RSEOperationNotSupported("longhaul renames nothing, and needs no temporary names")


def _wait(transfer: longhaul.Transfer, timeout: Optional[float]) -> None:
    """Waits for the end, and cancels what takes longer. What it has brought is kept."""
    with transfer:
        try:
            transfer.result(float(timeout) if timeout else None)
        except TimeoutError as error:
            raise exception.ServiceUnavailable(f"cancelled: {error}") from error


@contextlib.contextmanager
def _told(otherwise: Any) -> Iterator[None]:
    """Turns exceptions of longhaul into those of Rucio."""
    try:
        yield
    except (longhaul.NotFoundError, FileNotFoundError) as error:
        raise exception.SourceNotFound(str(error)) from error
    except (longhaul.DeniedError, PermissionError) as error:
        raise exception.RSEAccessDenied(str(error)) from error
    except longhaul.MismatchError as error:
        raise exception.FileConsistencyMismatch(str(error)) from error
    except longhaul.LonghaulError as error:
        if error.code == "exists":
            raise exception.FileReplicaAlreadyExists(str(error)) from error
        raise (exception.ServiceUnavailable if error.retry else otherwise)(str(error)) from error
