"""A protocol of Rucio: `impl` is `longhaul.rucio.Default`, `scheme` is `lh`.

In: physical file names `lh://HOST:PORT/ROOT/PATH`. Out: Rucio's answers and exceptions. Must not
know how a transfer runs. The prefix of the RSE begins with the name of a root, and uploads go
straight to their final names: the program shows no file there that is not whole. It deletes and
renames nothing, so an RSE says `delete: 0` for this protocol and names another for it.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, Optional

from rucio.common import exception
from rucio.rse.protocols import protocol

import longhaul
from longhaul.fsspec import LonghaulFileSystem


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
        self._options = {name: given[name] for name in longhaul.TransferOptions.__annotations__ if name in given}
        self._files = LonghaulFileSystem(**self._options)

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
            self._files.ls(self._host())

    def close(self) -> None:
        """Does nothing: each call has its own connection."""

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        with _told(exception.ServiceUnavailable):
            return bool(self._files.exists(self.path2pfn(path)))

    def stat(self, path: str) -> Dict[str, Any]:
        """The size, as `filesize`. The daemon keeps no checksum of Rucio's kinds."""
        with _told(exception.ServiceUnavailable):
            info = self._files.info(self.path2pfn(path))
        if info["type"] != "file":
            raise exception.SourceNotFound(f"{path} is no file")
        return {"filesize": info["size"]}

    def get(self, path: str, dest: str, transfer_timeout: Optional[float] = None) -> None:
        """Fetches one file. `dest` appears once it is whole and verified."""
        with _told(exception.ServiceUnavailable):
            local = os.path.join(os.curdir, dest)
            _wait(
                longhaul.pull(self.path2pfn(path), local, if_exists="replace", events=False, **self._options),
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
        with _told(exception.DestinationNotAccessible):
            _wait(longhaul.push(local, pfn, if_exists="fail", events=False, **self._options), transfer_timeout)

    def delete(self, path: str) -> None:
        """Raises: the program deletes nothing."""
        raise exception.RSEOperationNotSupported("longhaul deletes nothing: name another protocol for 'delete'")

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
