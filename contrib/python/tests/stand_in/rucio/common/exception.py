"""Exceptions of Rucio that `longhaul.rucio` raises, for a Python that Rucio does not run on."""

from __future__ import annotations


class RucioException(Exception):
    """The base of all."""


class DestinationNotAccessible(RucioException):
    pass


class FileConsistencyMismatch(RucioException):
    pass


class FileReplicaAlreadyExists(RucioException):
    pass


class NoAuthInformation(RucioException):
    pass


class RSEAccessDenied(RucioException):
    pass


class RSEFileNameNotSupported(RucioException):
    pass


class RSEOperationNotSupported(RucioException):
    pass


class ServiceUnavailable(RucioException):
    pass


class SourceNotFound(RucioException):
    pass
