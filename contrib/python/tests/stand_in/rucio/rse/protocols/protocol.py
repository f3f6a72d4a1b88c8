"""The base class of Rucio's protocols, as far as `longhaul.rucio` stands on it.

In: the settings of a protocol and of an RSE. Out: names of files, as a deterministic RSE has them.
It is for a Python that Rucio does not run on: where Rucio is, test_rucio.py compares the two.
"""

from __future__ import annotations

import abc
import hashlib
import logging
from typing import Any, Dict, Iterable, List, Optional, Tuple, Union
from urllib.parse import urlsplit

from rucio.common import exception


class RSEProtocol(abc.ABC):
    def __init__(self, protocol_attr: Dict[str, Any], rse_settings: Dict[str, Any], logger: Any = logging.log) -> None:
        if "auth_token" not in protocol_attr:
            raise exception.NoAuthInformation("no auth_token")
        self.auth_token = protocol_attr.pop("auth_token")
        self.attributes = protocol_attr
        self.rse = rse_settings
        self.logger = logger
        self.renaming = True
        self.overwrite = False

    def lfns2pfns(self, lfns: Union[List[Dict[str, Any]], Dict[str, Any]]) -> Dict[str, str]:
        pfns = {}
        for lfn in [lfns] if isinstance(lfns, dict) else lfns:
            scope, name = str(lfn["scope"]), lfn["name"]
            path = lfn["path"].lstrip("/") if lfn.get("path") is not None else self._path(scope, name)
            pfns[f"{scope}:{name}"] = "{scheme}://{hostname}:{port}".format(**self.attributes) + self._prefix() + path
        return pfns

    def parse_pfns(self, pfns: Union[Iterable[str], str]) -> Dict[str, Dict[str, Any]]:
        parsed = {}
        for pfn in [pfns] if isinstance(pfns, str) else pfns:
            url, prefix = urlsplit(pfn), self._prefix()
            told = (url.hostname, url.port or 0, url.path[: len(prefix)])
            if told != (self.attributes["hostname"], self.attributes["port"], prefix):
                raise exception.RSEFileNameNotSupported(pfn)
            directory, _, name = url.path[len(prefix) :].rpartition("/")
            parsed[pfn] = {
                "path": f"/{directory}/" if directory else "/",
                "name": name,
                "scheme": url.scheme,
                "prefix": prefix,
                "port": told[1],
                "hostname": told[0],
            }
        return parsed

    def _prefix(self) -> str:
        inner = self.attributes["prefix"].strip("/")
        return f"/{inner}/" if inner else "/"

    def _path(self, scope: str, name: str) -> str:
        digest = hashlib.md5(f"{scope}:{name}".encode()).hexdigest()
        if scope.startswith(("user", "group")):
            scope = scope.replace(".", "/")
        return f"{scope}/{digest[:2]}/{digest[2:4]}/{name}"

    def exists(self, path: Optional[str]) -> bool:
        raise NotImplementedError

    @abc.abstractmethod
    def connect(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def get(self, path: str, dest: str, transfer_timeout: Optional[int] = None) -> None: ...

    @abc.abstractmethod
    def put(
        self, source: str, target: str, source_dir: Optional[str], transfer_timeout: Optional[int] = None
    ) -> None: ...

    @abc.abstractmethod
    def delete(self, path: str) -> None: ...

    @abc.abstractmethod
    def rename(self, path: str, new_path: str) -> None: ...

    def get_space_usage(self) -> Tuple[int, int]:
        raise NotImplementedError

    def stat(self, path: str) -> Dict[str, Any]:
        raise NotImplementedError
