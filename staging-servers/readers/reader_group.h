// SPDX-License-Identifier: Apache-2.0
// The ranks of one parallel reader: one reader to its stream, with one answer for each turn.
// docs/design/reader-groups.md has the rules; GroupTurns decides, this gives it its events and the ranks their answers.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "readers/follower.h"
#include "readers/group_turns.h"
#include "readers/serving_turns.h"

namespace forebay::server {

class ReaderGroups;

/// What ranks have in common that read together.
struct ReaderGroupName {
  uid_t uid = 0;
  std::string path;  ///< of the stream
  std::string group;
  std::string consumer;
  std::uint64_t ordinal = 0;

  auto operator<=>(const ReaderGroupName&) const = default;
};

class ReaderGroup final : public Follower, private Serving, public std::enable_shared_from_this<ReaderGroup> {
 public:
  /// All of these outlive it. `group_number`: no other group's. With `resume`, its ranks are to come back.
  ReaderGroup(EventLoop& loop, StreamsToRead& streams, ReaderRegistry& registry, ReaderGroupName name,
              const wire::ReaderOpenT& asked, std::uint64_t group_number);
  ~ReaderGroup() override;

  const ReaderGroupName& group_name() const noexcept { return name_; }
  std::uint64_t group_number() const noexcept { return group_number_; }
  bool is_forming() const noexcept { return followers_ == nullptr && !over_; }
  const GroupTurns& turns() const noexcept { return turns_; }
  /// Why this connection's rank cannot take part; nothing if it can. Ranks that contradict each other fail the group's
  /// Open.
  std::optional<Error> refusal(const ReaderSession& session);

  void come(ReaderSession& session, Followers* found) override;
  bool is_opening() const override { return is_forming() && !returning_; }
  bool waits() const override { return followers_ != nullptr && turns_.is_complete(); }
  void drop_wait() override;
  std::string describe_wait(const std::string& step) const override;
  bool is_asking() const override { return followers_ != nullptr && !turns_.is_idle(); }
  bool closing() const override { return false; }
  std::string describe() const override;
  std::string name() const override;
  const Peer& peer() const override;
  std::size_t kept_bytes() const override;
  void end_with_process() override {}  // its connections do, from the beginning
  bool end_if_gone() override;
  void give(const storage::StepState& step, bool rewound_before, std::uint64_t skipped_before) override;
  void tell(wire::StepEventT event) override;
  void refuse(const Error& error) override;
  void stream_removed() override;

  Result<void> ask(ReaderSession& session, std::uint32_t request, const wire::StepWaitT& wait) override;
  /// The answer to a rank that polls is the turn's.
  wire::StepEventT poll() override { return not_ready(followers_); }
  Result<void> move_cursor(ReaderSession& session, const wire::CursorMoveT& move) override;
  Result<wire::StepsAnswerT> list(ReaderSession& session, std::uint64_t first, std::uint32_t steps_max) override;
  void left(ReaderSession& session) override;
  void closed(ReaderSession& session) override;
  void shut_out(ReaderSession& session, const Error& error) override;

 private:
  using Acknowledged = std::pair<std::uint32_t, std::uint64_t>;  ///< epoch and position
  struct Member {
    ReaderSession* session = nullptr;
    std::optional<std::uint32_t> wait_request;
    Acknowledged acknowledged{};
    std::optional<StepKey> held;  ///< the last step before a restart of the server, until all ranks have it
    bool has_list = false;
  };
  using Members = std::map<std::uint32_t, Member>;  ///< by rank

  // Forming
  void form(Followers* found);
  void give_up_forming();
  void enter(Followers& followers) override;
  void open_failed(const Error& error) override;
  void take_list();
  /// Answers the rank's Open. `turn`: the last one that it has the answer to.
  void let_in(std::uint32_t rank, ReaderSession& session, std::uint64_t turn);
  void come_back(ReaderSession& session, Followers* found);
  void look_for_absent();

  // Turns
  /// Decides the turn if all have asked.
  void go_on();
  /// Who is there has changed.
  void ranks_changed();
  void turn_is_late();
  void answer_not_ready();
  /// What a turn has brought beside its answer.
  struct Brought {
    bool rewound = false;
    std::uint64_t skipped = 0;
    std::vector<std::uint32_t> gone;  ///< ranks
  };
  /// Gives all who have asked the answer, thousands of them in several turns of the loop.
  void decide(TurnAnswer decided, Brought brought);
  bool serve_some() override;
  /// Answers the Opens of a group that has formed.
  bool let_some_in(ServingTurns::Slice& slice);
  /// The turn's answer to one rank.
  Result<void> give_answer(Member& member, std::uint32_t request, const Brought& brought);
  Brought brought_now() const { return {false, 0, turns_.gone()}; }
  void let_go_of_held();
  void let_go_of_held(Member& member);
  /// Moves the cursor to where all ranks are.
  Result<void> acknowledge();
  void wait_for_ranks();
  void lose(std::uint32_t rank, const std::string& why);
  /// It no longer reads: with an error that the ranks are told, or since all have gone.
  void stop_reading();

  Members::iterator find(const ReaderSession& session);
  std::string where() const { return "stream " + name_.path; }
  void cancel(std::optional<EventLoop::TimerId>& timer);
  void set(std::optional<EventLoop::TimerId>& timer, std::int64_t at_ns, void (ReaderGroup::*task)());

  const ReaderGroupName name_;
  const std::uint64_t group_number_;
  const bool returning_;  ///< made by a rank that came back after a restart of the server
  GroupTurns turns_;
  Brought brought_;                       ///< by the last turn
  std::deque<std::uint32_t> unanswered_;  ///< ranks that get its answer yet
  std::deque<std::uint32_t> to_let_in_;   ///< ranks whose Open is not answered yet
  Members members_;                       ///< who is connected, closed ones included
  Peer last_peer_;                        ///< of those that have gone
  Acknowledged acknowledged_{};           ///< by all ranks
  Followers* followers_ = nullptr;        ///< of its stream, while it reads
  bool over_ = false;                     ///< its Open has failed, or it has ended
  Deadline open_deadline_ = Deadline::never();
  std::int64_t since_ns_ = 0;      ///< monotonic: when the first rank came (back)
  bool followed_at_open_ = false;  ///< its stream had not ended then, so there is no list of the Open
  std::optional<std::vector<wire::StepSummary>> list_;
  std::optional<EventLoop::TimerId> forming_timer_;
  std::optional<EventLoop::TimerId> absent_timer_;
  std::optional<EventLoop::TimerId> late_timer_;       ///< until the last rank has asked
  std::optional<EventLoop::TimerId> not_ready_timer_;  ///< from then on
};

}  // namespace forebay::server
