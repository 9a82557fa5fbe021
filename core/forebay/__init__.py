# SPDX-License-Identifier: Apache-2.0
"""Forebay: staging for data in flight between programs.

>>> import forebay
>>> with forebay.open("run1/flow", mode="w") as stream:  # a producer
...     for number in range(100):
...         with stream.step() as step:
...             step["T"] = temperature
>>> for step in forebay.open("run1/flow").follow(consumer="render"):  # a consumer, in another process
...     plot(step["T"][...])
"""

from typing import Any

from forebay.admin import Admin
from forebay.checksum import crc32c
from forebay.datatypes import AttributeValue, ShapeKind, joined_dimension
from forebay.ensemble import EnsembleFollower, follow_all
from forebay.errors import (
    AlreadyExistsError,
    ArgumentTypeError,
    BusyError,
    CancelledError,
    CopyNeededError,
    CorruptError,
    DeadlineExceededError,
    DisconnectedError,
    ErrorCode,
    FencedError,
    ForebayError,
    ForebaySystemError,
    GroupBrokenError,
    InvalidArgumentError,
    NoSpaceError,
    NotFoundError,
    PermissionDeniedError,
    ProtocolError,
    RefusedError,
    StepGoneError,
    StepNotFoundError,
    StepTimeoutError,
    StorageError,
    StreamFailedError,
    StreamInterruptedError,
    StreamNotFoundError,
    UnsupportedError,
    VariableNotFoundError,
)
from forebay.file_address import FileAddress
from forebay.follower import Follower
from forebay.hold import Hold
from forebay.instance import Instance, instance_root, server_socket
from forebay.kept_steps import Steps
from forebay.opening import open  # noqa: A004 - forebay.open reads like the builtin
from forebay.records import (
    AccessMode,
    Address,
    AwaitedStream,
    ConsumerInfo,
    Finding,
    LauncherRank,
    Lifetime,
    Notice,
    PingInfo,
    ReservationInfo,
    ReservationType,
    Retention,
    Rights,
    ServerInfo,
    Severity,
    Share,
    ShareKind,
    StepSummary,
    StreamInfo,
    StreamStatus,
    StreamWait,
    WaitKind,
    launcher_rank,
)
from forebay.series import Series
from forebay.sizes import format_size, parse_size
from forebay.step import Step
from forebay.step_metadata import StepMetadata, StepsMetadata, VariableLayout, VariableMetadata
from forebay.stream import Stream
from forebay.ticket import Ticket, open_step
from forebay.variable import Block, Variable
from forebay.writable_stream import WritableStream
from forebay.writing import AttributesBeingWritten, StepBeingWritten

__all__ = [
    "AccessMode",
    "Address",
    "Admin",
    "AlreadyExistsError",
    "ArgumentTypeError",
    "AttributeValue",
    "AttributesBeingWritten",
    "AwaitedStream",
    "Block",
    "BusyError",
    "CancelledError",
    "ConsumerInfo",
    "CopyNeededError",
    "CorruptError",
    "DeadlineExceededError",
    "DisconnectedError",
    "EnsembleFollower",
    "ErrorCode",
    "FencedError",
    "FileAddress",
    "Finding",
    "Follower",
    "ForebayError",
    "ForebaySystemError",
    "GroupBrokenError",
    "Hold",
    "Instance",
    "InvalidArgumentError",
    "LauncherRank",
    "Lifetime",
    "NoSpaceError",
    "NotFoundError",
    "Notice",
    "PermissionDeniedError",
    "PingInfo",
    "ProtocolError",
    "RefusedError",
    "ReservationInfo",
    "ReservationType",
    "Retention",
    "Rights",
    "Series",
    "ServerInfo",
    "Severity",
    "ShapeKind",
    "Share",
    "ShareKind",
    "Step",
    "StepBeingWritten",
    "StepGoneError",
    "StepMetadata",
    "StepNotFoundError",
    "StepSummary",
    "StepTimeoutError",
    "Steps",
    "StepsMetadata",
    "StorageError",
    "Stream",
    "StreamFailedError",
    "StreamInfo",
    "StreamInterruptedError",
    "StreamNotFoundError",
    "StreamStatus",
    "StreamWait",
    "Ticket",
    "UnsupportedError",
    "Variable",
    "VariableLayout",
    "VariableMetadata",
    "VariableNotFoundError",
    "WaitKind",
    "WritableStream",
    "crc32c",
    "follow_all",
    "format_size",
    "instance_root",
    "joined_dimension",
    "launcher_rank",
    "open",
    "open_step",
    "parse_size",
    "server_socket",
]


def __getattr__(name: str) -> Any:
    # Reading the distribution's metadata takes longer than importing all of the above.
    if name == "__version__":
        from importlib.metadata import version

        return version("forebay")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
