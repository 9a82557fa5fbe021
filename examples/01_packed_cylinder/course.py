# SPDX-License-Identifier: Apache-2.0
"""What happened during the show, as it was seen from outside: commits, latencies, who was killed and who came back."""

from __future__ import annotations

from dataclasses import dataclass, field

from forebay.records import StreamInfo, StreamStatus


@dataclass
class RankKill:
    """A rank of the simulation was killed, and the simulation restarted. Times without a word are since the kill."""

    rank: int
    at_step: int  #: newest committed step when the group was gone
    killed_at: float  #: seconds since the Unix epoch
    other_rank_status: int
    other_rank_ended_s: float
    followers_told_s: float  #: that the stream is interrupted
    checkpoint: int  #: the restart's
    withdrawn: int  #: steps after the checkpoint
    restarted_s: float = 0.0  #: the new ranks were started
    first_step_s: float = 0.0  #: the first step of the restart was committed
    caught_up_s: float = 0.0  #: the stream was where it had been


@dataclass
class ServerKill:
    """The staging server was killed and started again. Times without a word are since the kill."""

    pid: int
    at_step: int  #: newest committed step
    killed_at: float  #: seconds since the Unix epoch
    new_pid: int = 0
    up_s: float = 0.0  #: how long `forebay up` took
    first_step_s: float = 0.0  #: the next step was committed


@dataclass
class Pause:
    """Rendering was stopped, or its node cut off, or a server killed, and let go on."""

    at_step: int  #: newest committed step
    steps: int = 0  #: committed meanwhile


@dataclass(frozen=True)
class Told:
    """Followers were told of a new status."""

    at: float  #: seconds since the Unix epoch
    status: StreamStatus


@dataclass
class Course:
    """Of one show."""

    started_at: float = 0.0  #: seconds since the Unix epoch; the first rank was started
    ended_at: float = 0.0  #: the stream had ended
    commits: dict[int, float] = field(default_factory=dict)  #: when each step was committed that was not withdrawn
    latencies_ms: list[float] = field(default_factory=list)  #: from a commit to a Python program that waited for it
    told: list[Told] = field(default_factory=list)
    rewound_to: list[int] = field(default_factory=list)  #: where followers were told that steps were withdrawn
    kept_bytes_max: int = 0
    kept_steps_max: int = 0
    lag_steps_max: dict[str, int] = field(default_factory=dict)
    rank_kill: RankKill | None = None
    server_kill: ServerKill | None = None
    pause: Pause | None = None
    cut: Pause | None = None  #: of the renderer's node, where there are several nodes
    away: Pause | None = None  #: of one of several servers
    final: StreamInfo | None = None  #: the stream, when all had read it

    def first_commit_after(self, moment: float) -> float | None:
        """When the first step after that moment was committed; None if none was."""
        return min((committed for committed in self.commits.values() if committed > moment), default=None)

    def sample(self, info: StreamInfo) -> None:
        """Takes in one look at the stream."""
        self.kept_bytes_max = max(self.kept_bytes_max, info.size_bytes)
        self.kept_steps_max = max(self.kept_steps_max, info.steps)
        for consumer in info.consumers:
            self.lag_steps_max[consumer.name] = max(self.lag_steps_max.get(consumer.name, 0), consumer.lag_steps)
