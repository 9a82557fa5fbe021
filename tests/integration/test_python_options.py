# SPDX-License-Identifier: Apache-2.0
"""Wrong option types and misspelt names are told with what would be right, and leave everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import forebay


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": 20}, "retention is a text such as 'last:10' or a Retention, not 20: to keep the last 20 steps"),
        ({"retention": ["last:3"]}, "retention is a text such as 'last:10' or a Retention, not"),
        ({"timeout": "5"}, "timeout is a number of seconds, or None to wait for ever, not '5'"),
        ({"reconnect_timeout": "5"}, "reconnect_timeout is a number of seconds, or None to wait for ever, not '5'"),
        ({"block_timeout": "5"}, "block_timeout is a number of seconds, or None to wait for ever, not '5'"),
        ({"grace": True}, "grace is a number of seconds, or None to wait for ever, not True"),
        ({"append_after": 1.0}, "append_after is a whole number, not 1.0"),
        ({"rendezvous_readers": "2"}, "rendezvous_readers is a whole number, not '2'"),
        ({"force": "yes"}, "force is True or False, not 'yes'"),
        ({"statistics": 0}, "statistics is True or False, not 0"),
        ({"when_full": 3}, "when_full is a text, not 3"),
        ({"durability": True}, "durability is a text, not True"),
        ({"verify": 1}, "verify is a text, not 1"),
        ({"rank": "0", "ranks": 1}, "rank is a whole number, not '0'"),
        ({"rank": 0, "ranks": "1"}, "ranks is a whole number, not '1'"),
        ({"group": 7, "rank": 0, "ranks": 1}, "group is a text, not 7"),
        ({"run": 7}, "run is a text, not 7"),
        ({"instance": 7}, "an instance is named by its root or its server's socket, a path, not by 7"),
        (
            {"retain": 3},
            r"open\(\) has no option 'retain'; did you mean 'retention'\? known are address, mode, instance",
        ),
        ({"when_ful": "error"}, r"did you mean 'when_full'\?"),
    ],
)
def test_wrong_options_for_writing(reservation: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.ArgumentTypeError, match=message) as caught:
        forebay.open(f"{reservation}/flow", mode="w", **options)
    assert isinstance(caught.value, TypeError)
    with forebay.Admin() as admin:
        assert admin.streams(reservation) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"retention": "20"}, "retention='20': "),
        ({"retention": ""}, "retention='': "),
        ({"durability": "yes"}, "durability='yes': expected one of committed, durable"),
        ({"distribution": "all"}, "distribution='all': expected one of"),
        ({"verify": "always"}, "verify"),
        ({"rank": -1, "ranks": 1}, "rank from 0, not rank=-1"),
        ({"rank": 0, "ranks": 0}, "ranks count from 1"),
        ({"append_after": -1}, "append_after='-1': expected the number of a step"),
    ],
)
def test_wrong_values_for_writing(reservation: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(forebay.InvalidArgumentError, match=message):
        forebay.open(f"{reservation}/flow", mode="w", **options)


def test_wrong_options_for_reading(reservation: str) -> None:
    address = f"{reservation}/flow"
    forebay.open(address, mode="w").close()
    wrong: list[tuple[dict[str, Any], str]] = [
        (
            {"verify_blocks": "read"},
            r"has no option 'verify_blocks'; did you mean 'verify'\? known are address, mode, instance, verify",
        ),
        ({"timeout": "5"}, "timeout is a number of seconds"),
    ]
    for options, message in wrong:
        with pytest.raises(forebay.ArgumentTypeError, match=message):
            forebay.open(address, **options)
    with pytest.raises(forebay.InvalidArgumentError, match="option 'retention' is for writing"):
        forebay.open(address, retention="last:3")  # type: ignore[call-overload]
    for place in (5, None, b"run1/flow"):
        with pytest.raises(forebay.ArgumentTypeError, match="an address is a text such as 'run1/flow'"):
            forebay.open(place)  # type: ignore[call-overload]
    with pytest.raises(forebay.InvalidArgumentError, match="mode is 'r', 'w' or 'a', not 'rw'"):
        forebay.open(address, "rw")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": "5"}, "timeout is a number of seconds, or None to wait for ever, not '5'"),
        ({"timeouts": 5}, r"follow\(\) has no option 'timeouts'; did you mean 'timeout'\? known are consumer, timeout"),
        ({"consumer": 5}, "consumer is a name, not 5"),
        ({"start": 1.5}, "start, where it is not .*, is a whole number, not 1.5"),
        ({"latest_only": 1}, "latest_only is True or False, not 1"),
        ({"min_watermark": 2}, "min_watermark is a text, not 2"),
        ({"distribution": None}, "distribution is a text, not None"),
        ({"on_notice": "print"}, "on_notice is a function that takes a Notice, not 'print'"),
    ],
)
def test_wrong_options_for_following(reservation: str, options: dict[str, Any], message: str) -> None:
    with (
        forebay.open(f"{reservation}/flow", mode="w") as stream,
        pytest.raises(forebay.ArgumentTypeError, match=message),
    ):
        stream.follow(**options)


def test_wrong_values_for_following(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        for options in ({"start": "newest"}, {"min_watermark": "staged"}, {"ack": "never"}, {"distribution": "some"}):
            [(name, value)] = options.items()
            with pytest.raises(forebay.InvalidArgumentError, match=f"{name}.*{value}|{value}.*{name}"):
                stream.follow(**options)  # type: ignore[arg-type]
        follower = stream.follow(timeout=0)
        with pytest.raises(forebay.ArgumentTypeError, match="a step's number is a whole number"):
            follower.seek("1")  # type: ignore[arg-type]
        with pytest.raises(forebay.ArgumentTypeError, match="a step's number is a whole number"):
            stream.seek(1.5)  # type: ignore[arg-type]
        with pytest.raises(forebay.ArgumentTypeError, match="timeout is a number of seconds"):
            follower.timeout = "5"  # type: ignore[assignment]


def test_wrong_arguments_of_a_write(reservation: str) -> None:
    with forebay.open(f"{reservation}/flow", mode="w") as stream:
        with stream.step() as step:
            step_of_any: Any = step
            wrong: list[tuple[Callable[[], object], str]] = [
                (lambda: step_of_any.write(5, np.zeros(3)), "the name of a variable is a text, not 5"),
                (lambda: step_of_any.__setitem__(5, 1), "the name of a variable is a text, not 5"),
                (lambda: step_of_any.write("T", np.zeros(3), shape=5), "shape is a sequence of whole numbers, not 5"),
                (lambda: step_of_any.write("T", np.zeros(3), shape=(5.0,)), "each number of shape is a whole number"),
                (lambda: step_of_any.write("T", 1, offset=(0,)), r"write\(\) has no option 'offset'; known are name"),
                (lambda: step_of_any.allocate("T", (3,), starts=(0,)), r"did you mean 'start'\?"),
                (lambda: step_of_any.allocate("T", (3,), count=3), "count is a sequence of whole numbers, not 3"),
            ]
            for use, message in wrong:
                with pytest.raises(forebay.ArgumentTypeError, match=message):
                    use()
            step["T"] = 1
        assert stream.latest["T"] == 1
    with forebay.Admin() as admin:
        with pytest.raises(forebay.ArgumentTypeError, match=r"create\(\) has no option 'persist'; did you mean"):
            admin.create("x", "64MiB", persist=True)  # type: ignore[call-arg]
        with pytest.raises(forebay.ArgumentTypeError, match="the name of a reservation is a text, not 5"):
            admin.create(5, "64MiB")  # type: ignore[arg-type]
