# SPDX-License-Identifier: Apache-2.0
"""The rules of `forebay advise` for a run: each fires on what it is for, and on nothing near it."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from forebay.workflows.advice.advice import Action, Advice
from forebay.workflows.advice.log_facts import (
    LogFacts,
    OneWriter,
    SharedFile,
    SlowRank,
    SlowTarget,
    StepFiles,
    TinyFile,
)
from forebay.workflows.advice.log_rules import RULES, advice_of
from tests.support.golden_logs import BAD_TARGET, GOLDEN_LOGS, VPIC

#: 16 processes for 100 s, half of it in input and output, in which nothing is wrong.
SOUND = LogFacts(program="run", processes=16, run_seconds=100.0, busy_seconds=800.0, slowest_rank_seconds=50.0)

TILE = SharedFile(
    path="/lustre/tile",
    ranks=16,
    size=10 << 20,
    bytes_written=10 << 20,
    writes=5120,
    strided_calls=5000,
    independent_calls=5120,
    requested_bytes_written=10 << 20,
    stripe_count=1,
)
COLLECTIVE = replace(
    TILE,
    size=50 * 10**9,
    writes=20,
    strided_calls=0,
    independent_calls=0,
    collective_calls=320,
    stripe_count=4,
)
#: Of 10 MiB, in few calls.
UNEQUAL = replace(TILE, writes=9, fastest_rank_bytes=84, slowest_rank_bytes=100)


def run(**changes: Any) -> LogFacts:
    """The sound run with something about it changed."""
    return replace(SOUND, **changes)


def action_of(facts: LogFacts, rule: int) -> Action:
    """What one rule says."""
    action = dict(RULES)[rule](facts)
    assert action is not None
    return action


FIRES = [
    (1, run(writes=2000, small_writes=1500), run(writes=2000, small_writes=150)),
    (1, run(reads=1100, small_reads=1001), run(reads=1000, small_reads=1000)),
    (2, run(writes=100, unaligned_calls=11, alignment=4096), run(writes=100, unaligned_calls=10, alignment=4096)),
    (3, run(shared_files=(TILE,)), run(shared_files=(replace(TILE, strided_calls=2000),))),
    (3, run(shared_files=(TILE,)), run(shared_files=(replace(TILE, collective_calls=6000, stripe_count=None),))),
    (
        4,
        run(shared_files=(replace(TILE, writes=40, reads=42, bytes_read=10 << 20, bytes_written=20 << 20),)),
        # The program itself reads.
        run(
            shared_files=(
                replace(
                    TILE,
                    writes=40,
                    reads=42,
                    bytes_read=10 << 20,
                    bytes_written=20 << 20,
                    requested_bytes_read=10 << 20,
                ),
            )
        ),
    ),
    (5, run(shared_files=(COLLECTIVE,)), run(shared_files=(replace(COLLECTIVE, independent_calls=400, writes=400),))),
    (
        6,
        run(own_files=16, ranks_with_own_files=16, own_bytes=9 << 30, own_folder="/l", bytes_written=10 << 30),
        run(own_files=16, ranks_with_own_files=12, own_bytes=9 << 30, own_folder="/l", bytes_written=10 << 30),
    ),
    (
        7,
        run(shared_files=(replace(TILE, writes=9, size=50 * 10**9, stripe_count=1),)),
        run(shared_files=(replace(TILE, writes=9, size=50 * 10**9, stripe_count=4),)),
    ),
    (8, run(tiny_file=TinyFile("/l/in", 800, 9.0)), run(tiny_file=TinyFile("/l/in", 800, 7.0))),
    (9, run(reads=4000, random_reads=1001), run(reads=6000, random_reads=1001)),
    (10, run(step_files=StepFiles("/l/chk00010", 5, 1 << 30, "numbered")), SOUND),
    (11, run(one_writer=OneWriter(0, 1 << 30)), run(one_writer=OneWriter(0, (1 << 30) - 1))),
    (12, run(slow_target=SlowTarget(14, 49.0, 24)), SOUND),
    (12, run(slow_rank=SlowRank(7, 50.0, 5.0)), SOUND),
    (
        12,
        run(bytes_written=10 << 20, shared_files=(UNEQUAL,)),
        run(bytes_written=10 << 20, shared_files=(replace(UNEQUAL, fastest_rank_bytes=86),)),
    ),
    # A small part of what the run moves.
    (12, run(bytes_written=10 << 20, shared_files=(UNEQUAL,)), run(bytes_written=1 << 30, shared_files=(UNEQUAL,))),
    (13, run(metadata_seconds_max=30.1), run(metadata_seconds_max=30.0)),
]


@pytest.mark.parametrize(("rule", "fires", "silent"), FIRES, ids=[f"{row[0]}-{n}" for n, row in enumerate(FIRES)])
def test_a_rule_fires_alone_on_its_condition_and_not_just_below_it(
    rule: int, fires: LogFacts, silent: LogFacts
) -> None:
    assert advice_of(fires).rules == (rule,)
    assert rule not in advice_of(silent).rules


@pytest.mark.parametrize(("name", "rules"), [("example.darshan", (2, 5)), ("sample-badost.darshan", (6, 12))])
def test_the_logs_that_are_known_fire_what_is_known(name: str, rules: tuple[int, ...]) -> None:
    advice = advice_of(GOLDEN_LOGS[name])
    assert advice.rules == rules
    assert advice.worthwhile


def test_all_rules_of_the_table_are_there_once() -> None:
    assert sorted(number for number, _ in RULES) == list(range(1, 14))


def test_a_run_that_gains_little_is_left_alone_with_the_bound() -> None:
    advice = advice_of(run(busy_seconds=40.0, slowest_rank_seconds=3.0, writes=2000, small_writes=2000))
    assert not advice.worthwhile
    assert advice.verdict.startswith("Do not bother: input and output take 2.5 %")
    assert "at most 3.0 % of the run time can be gained (a run 1.03 times as fast)" in advice.verdict
    assert (advice.actions, advice.lines, advice.rules) == ((), (), (1,))


def test_one_slow_rank_is_worth_looking_at_though_the_mean_is_small() -> None:
    """IOR on a broken target: 4.4 % of the processes' time, and all of the run's."""
    assert BAD_TARGET.busy_share < 0.05
    advice = advice_of(BAD_TARGET)
    assert advice.gain_max == pytest.approx(0.998, abs=0.001)
    assert advice.actions[0].what.startswith("Have storage target OST 14 looked at")


def test_an_incomplete_log_never_says_do_not_bother() -> None:
    advice = advice_of(run(busy_seconds=1.0, slowest_rank_seconds=0.1, partial_modules=("POSIX",)))
    assert advice.worthwhile
    assert "POSIX" in advice.remarks[0]


def test_a_sound_run_has_nothing_to_change() -> None:
    advice = advice_of(SOUND)
    assert advice.verdict.startswith("Nothing to change: input and output take 50 %")
    assert advice.actions == ()


def test_at_most_three_actions_the_weightiest_first() -> None:
    everything = run(
        writes=5120,
        small_writes=5120,
        unaligned_calls=5120,
        alignment=1 << 20,
        bytes_written=10 << 20,
        shared_files=(TILE,),
        metadata_seconds_max=40.0,
    )
    advice = advice_of(everything)
    assert advice.rules == (1, 2, 3, 13)
    assert [action.rule for action in advice.actions] == [3, 1, 13]


def test_the_number_of_aggregators_is_a_multiple_of_the_servers_that_divides_the_ranks() -> None:
    hint = action_of(run(shared_files=(COLLECTIVE,)), 5).hints
    assert hint == (("/lustre/tile", "cb_nodes=8"),)
    three = run(processes=72, busy_seconds=3600.0, shared_files=(replace(COLLECTIVE, stripe_count=3, size=1),))
    assert action_of(three, 5).hints == (("/lustre/tile", "cb_nodes=6"),)
    assert "no multiple of 24 divides 2048 ranks" in action_of(VPIC, 5).because


@pytest.mark.parametrize(
    ("size", "stripes", "wanted"),
    [(9 * 10**9, 2, 1), (50 * 10**9, 1, 4), (500 * 10**9, 24, 20), (2000 * 10**9, 4, 20)],
)
def test_stripes_follow_the_size_of_a_shared_file(size: int, stripes: int, wanted: int) -> None:
    file = replace(TILE, writes=9, size=size, stripe_count=stripes)
    assert action_of(run(shared_files=(file,)), 7).lines == (f"lfs setstripe -c {wanted} /lustre",)


def test_capacity_is_the_steps_that_are_kept_and_two() -> None:
    facts = run(step_files=StepFiles("/l/chk00010", 5, 3 << 30, "numbered"))
    assert "#DW jobdw capacity=15GiB access_mode=striped type=scratch" in advice_of(facts).lines


def test_hints_for_one_file_become_one_line() -> None:
    sieving = replace(COLLECTIVE, bytes_read=10 << 20, bytes_written=20 << 20)
    lines = advice_of(run(shared_files=(sieving,))).lines
    hints = [line for line in lines if "MPICH_MPIIO_HINTS" in line]
    assert hints == ["export MPICH_MPIIO_HINTS=/lustre/tile:romio_ds_write=disable:cb_nodes=8"]


def test_a_path_of_the_log_is_one_word_for_the_shell() -> None:
    """A log may come from anybody, and its lines are pasted."""
    path = "/l/$(touch x); `touch y` \"a\" 'b'/tile"
    facts = run(
        shared_files=(replace(COLLECTIVE, path=path, stripe_count=2),),
        own_folder=path,
        own_files=16,
        ranks_with_own_files=16,
        own_bytes=1,
        bytes_written=1,
    )
    words = [shlex.split(line, comments=True) for line in advice_of(facts).lines]
    assert ["export", f"MPICH_MPIIO_HINTS={path}:cb_nodes=4"] in words
    assert ["lfs", "setstripe", "-c", "4", path.rpartition("/")[0]] in words
    assert ["lfs", "setstripe", "-c", "1", path] in words
    colon = replace(COLLECTIVE, path="/l/a:b")
    assert "export MPICH_MPIIO_HINTS='*:cb_nodes=8'" in advice_of(run(shared_files=(colon,))).lines


def test_every_action_says_what_was_seen_what_to_expect_and_who_says_so() -> None:
    for rule, facts, _ in FIRES:
        action = action_of(facts, rule)
        assert all((action.what, action.because, action.effect, action.source)), rule
        assert all(len(text) < 300 for text in (action.what, action.because, action.effect, action.source)), rule


def test_json_gives_back_the_facts() -> None:
    facts = replace(BAD_TARGET, shared_files=(TILE,), one_writer=OneWriter(1, 2), step_files=StepFiles("a", 2, 3, "b"))
    assert LogFacts.of_json(facts.as_json()) == facts
    document = facts.as_json()
    del document["processes"]
    with pytest.raises(KeyError):
        LogFacts.of_json(document)
    assert isinstance(advice_of(facts), Advice)
    assert set(advice_of(facts).as_json()) >= {"verdict", "gain_max", "rules", "actions", "lines"}
