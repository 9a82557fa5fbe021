# SPDX-License-Identifier: Apache-2.0
"""Addresses, retention and the records' plain form."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import forebay
from forebay import _core
from forebay.opening import WriterOptions
from forebay.records import Record


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("run1/flow", forebay.Address("run1", "flow")),
        ("forebay://run1/flow", forebay.Address("run1", "flow")),
        ("run1/flow@17", forebay.Address("run1", "flow", 17)),
    ],
)
def test_address_is_parsed(text: str, address: forebay.Address) -> None:
    assert forebay.Address.parse(text) == address
    assert forebay.Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "run1", "run1/", "/flow", "a/b/c", "run1/files", "1run/flow", "run1/flow@", "run1/flow@x"]
)
def test_other_texts_are_no_address(text: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError):
        forebay.Address.parse(text)


def test_address_of_a_step_is_not_opened() -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=r"stream\[17\]"):
        forebay.open("run1/flow@17")


@pytest.mark.parametrize(
    ("text", "retention"),
    [
        ("all", forebay.Retention()),
        ("last:3", forebay.Retention(last=3)),
        ("consumers:render+post", forebay.Retention(consumers=("render", "post"))),
        ("last:3,consumers:render,precious:10", forebay.Retention(last=3, consumers=("render",), precious_every=10)),
        ("last:10,first:1", forebay.Retention(last=10, first=1)),
        ("all,first:2,precious:4", forebay.Retention(first=2, precious_every=4)),
    ],
)
def test_retention_is_parsed_and_written(text: str, retention: forebay.Retention) -> None:
    assert forebay.Retention.parse(text) == retention
    assert str(retention) == text


@pytest.mark.parametrize("text", ["", "none", "last:", "last:-1", "last:x", "first:0", "first:-1", "consumers:"])
def test_other_texts_are_no_retention(text: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError):
        forebay.Retention.parse(text)


def stream_info() -> forebay.StreamInfo:
    return forebay.StreamInfo(
        name="flow",
        uuid="u",
        epoch=1,
        incarnation=1,
        ranks=2,
        run="",
        original_name="",
        status=forebay.StreamStatus.LIVE,
        status_text="",
        oldest=0,
        committed=3,
        durable=None,
        staged=None,
        steps=4,
        size_bytes=100,
        committed_bytes=120,
        step_open=True,
        retention=forebay.Retention(last=2, consumers=("render",)),
        consumers=(forebay.ConsumerInfo("render", 2, 2, True, 99),),
        waits=(forebay.StreamWait(forebay.WaitKind.SPACE, "rank 0, process 7", 7, "4 KiB of space", 1),),
        epochs=(forebay.EpochStart(2, 5),),
        lost=(forebay.StepRange(0, 0), forebay.StepRange(2, 3)),
    )


def test_record_becomes_json() -> None:
    info = stream_info()
    plain = json.loads(json.dumps(info.as_dict()))
    assert plain == info.as_dict()
    assert plain["status"] == "live"
    assert plain["retention"] == {"last": 2, "consumers": ["render"], "first": 0, "precious_every": 0}
    assert plain["consumers"] == [
        {"name": "render", "position": 2, "lag_steps": 2, "connected": True, "holder_pid": 99}
    ]
    assert plain["epochs"] == [{"epoch": 2, "first_step": 5}]
    assert plain["lost"] == [{"first": 0, "last": 0}, {"first": 2, "last": 3}]
    assert plain["waits"] == [
        {"kind": "space", "who": "rank 0, process 7", "pid": 7, "waits_for": "4 KiB of space", "since_ns": 1}
    ]


def test_record_leaves_out_what_only_a_newer_manager_tells() -> None:
    plain = stream_info().as_dict()
    plain["retention"]["later"] = 1
    assert forebay.StreamInfo.from_native(plain | {"later": {}}) == stream_info()


def test_choices_that_only_a_newer_server_knows_are_taken_as_they_are() -> None:
    plain = stream_info().as_dict()
    plain["status"] = "asleep"
    plain["waits"][0]["kind"] = "tea"
    info = forebay.StreamInfo.from_native(plain)
    assert isinstance(info.status, forebay.StreamStatus)
    assert [str(info.status), info.status.value] == ["asleep", "asleep"]
    assert info.waits[0].kind not in set(forebay.WaitKind)
    assert info.as_dict() == plain
    assert {info.status: 1}.get(forebay.StreamInfo.from_native(plain).status) == 1
    with pytest.raises(ValueError, match="asleep"):
        forebay.StreamStatus("asleep")


def test_record_in_a_field_that_may_be_none_is_one() -> None:
    @dataclasses.dataclass(frozen=True, slots=True)
    class Outer(Record):
        inner: forebay.EpochStart | None

    outer = Outer(forebay.EpochStart(2, 5))
    assert Outer.from_native(outer.as_dict()) == outer
    assert Outer.from_native({"inner": None}) == Outer(None)


@pytest.mark.parametrize("name", sorted(_core.record_fields()))
def test_record_has_the_fields_that_the_native_side_tells(name: str) -> None:
    fields = [field.name for field in dataclasses.fields(getattr(forebay.records, name))]
    assert fields == _core.record_fields()[name]


@pytest.mark.parametrize(
    ("table", "record"),
    [
        ("Consumer", "ConsumerInfo"),
        ("Stream", "StreamInfo"),
        ("Reservation", "ReservationInfo"),
        ("ServerAnswer", "ServerInfo"),
        ("Finding", "Finding"),
        ("Share", "Share"),
        ("Wait", "StreamWait"),
        ("AwaitedStream", "AwaitedStream"),
    ],
)
def test_record_has_all_fields_of_its_table_on_the_wire(table: str, record: str) -> None:
    schema = (Path(__file__).parents[3] / "core/protocol/messages.fbs").read_text()
    body = re.search(rf"^table {table} {{$(.*?)^}}$", schema, re.MULTILINE | re.DOTALL)
    assert body is not None
    fields = re.findall(r"^  (\w+):", body[1], re.MULTILINE)
    assert sorted(fields) == sorted(_core.record_fields()[record])


def test_writer_options_are_those_of_the_native_table() -> None:
    names = {name for name, _, _ in _core.writer_options()}
    from_launcher = {"rank", "ranks", "group"}
    for_all_modes = {"timeout", "reconnect_timeout", "run"}
    assert set(get_type_hints(WriterOptions)) == names - for_all_modes | from_launcher
    parameters = re.findall(r"^(\w[\w, ]*) : ", inspect.getdoc(forebay.open) or "", re.MULTILINE)
    documented = {name for line in parameters for name in line.split(", ")}
    for_reading = {"wait_for_writer", "trust_writer", "on_unavailable", "turn_timeout", "on_reader_lost"}
    assert documented == {"address", "mode", "instance", "verify"} | for_reading | names | from_launcher


def test_records_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        forebay.Retention().last = 3  # type: ignore[misc]


def test_rank_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_RANK", "1")
    monkeypatch.setenv("FOREBAY_RANKS", "4")
    found = forebay.launcher_rank()
    assert (found.rank, found.ranks) == (1, 4)
    assert "FOREBAY_RANK" in found.source


def test_rank_without_its_number_is_refused() -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="both rank and ranks"):
        forebay.open("run1/flow", mode="w", rank=1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"when_full": "wait"}, "when_full='wait': expected one of block, drop_oldest, error"),
        ({"append_after": "last"}, "append_after is a whole number, not 'last'"),
        ({"rendezvous_readers": -1}, "rendezvous_readers='-1': expected a number from 0"),
        ({"checksums": "perhaps"}, "checksums is True or False, not 'perhaps'"),
        ({"retention": "some"}, "retention='some': cannot read"),
        ({"block_timeout": -1}, "seconds"),
    ],
)
def test_mistaken_option_names_itself_and_what_is_known(option: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=message):
        forebay.open("run1/flow", mode="w", **option)


def test_unknown_option_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="'colour'"):
        forebay.open("run1/flow", mode="w", colour="red")  # type: ignore[call-overload]


def test_options_for_writing_are_refused_when_reading() -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="'retention' is for writing"):
        forebay.open("run1/flow", retention="all")  # type: ignore[call-overload]


@pytest.mark.parametrize("timeout", [-1, float("nan"), 1e13])
def test_timeout_is_a_number_of_seconds(timeout: float) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match="seconds"):
        forebay.open("run1/flow", timeout=timeout)


def test_the_epoch_of_a_number_is_that_of_the_last_one_that_begins_there() -> None:
    starts = (forebay.EpochStart(2, 5), forebay.EpochStart(4, 9))
    info = dataclasses.replace(stream_info(), epochs=starts)
    assert [info.epoch_of(number) for number in (0, 4, 5, 8, 9, 20)] == [1, 1, 2, 2, 4, 4]
    assert dataclasses.replace(info, epochs=()).epoch_of(7) == 1
