// SPDX-License-Identifier: Apache-2.0
// A stream at run time: its journal and state, its writer group, its followers, its flusher. Every change of what
// exists goes through record(): append to the journal, then apply to the state.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <forebay/reader.h>

#include "base/log.h"
#include "daemon/event_loop.h"
#include "protocol/message.h"
#include "readers/followers.h"
#include "reservations/reservation.h"
#include "storage/journal.h"
#include "storage/stream_state.h"
#include "streams/flusher.h"
#include "streams/journal_waste.h"
#include "writers/writer_group.h"

namespace forebay::server {

/// A commit of a step: number and the epoch it was made in.
using StepKey = std::pair<std::uint32_t, std::uint64_t>;

class Stream {
 public:
  Stream(Reservation& reservation, std::uint64_t number, storage::StreamState state,
         std::shared_ptr<storage::Journal> journal, const JournalWaste& waste);
  ~Stream();

  Reservation& reservation() noexcept { return reservation_; }
  const Reservation& reservation() const noexcept { return reservation_; }
  const storage::StreamState& state() const noexcept { return state_; }
  storage::Journal& journal() noexcept { return *journal_; }
  const storage::Journal& journal() const noexcept { return *journal_; }
  const std::shared_ptr<storage::Journal>& shared_journal() const noexcept { return journal_; }
  const std::string& name() const noexcept { return state_.name; }
  std::string path() const { return reservation_.name() + "/" + state_.name; }
  std::uint64_t number() const noexcept { return number_; }
  WriterGroup& group() noexcept { return group_; }
  std::size_t rank_count() const noexcept { return group_.rank_count(); }
  Followers& followers() noexcept { return followers_; }
  Flusher& flusher() noexcept { return flusher_; }

  /// Appends and applies. A failure to append makes the stream failed.
  template <class Record>
  Result<void> record(storage::RecordType type, Record change) {
    const auto body = protocol::pack(change);
    if (auto appended = append(type, {body.data(), body.size()}); !appended) return appended;
    auto result = applied(state_.apply(std::move(change)));
    if (should_roll()) post_roll();
    return result;
  }

  /// Makes the step visible: readers get it, old steps go, writers are answered.
  Result<void> commit(journal::StepCommittedT step);
  /// Withdraws the steps from `first` on in a new epoch; consumers beyond it are set back.
  Result<void> withdraw(std::uint64_t first);
  /// A new group begins, and with one record withdraws the steps from `formed.withdraws_from` on.
  Result<void> form_group(journal::GroupFormedT formed);
  /// Drops what retention allows to go.
  void apply_retention();
  /// Drops the oldest step that is neither precious nor needed; false if there is none, or it cannot be dropped now.
  bool drop_oldest();
  /// Would drop_oldest() find a step if readers let go of theirs and consumers went on?
  bool drops_when_let_go() const;
  /// Could a step's space come free by itself: unpinning, consumers passing, staging, a commit that pushes older ones
  /// out?
  bool may_free_space() const;

  /// Begins the journal anew with what it says now; false, and all is as it was, if that cannot be.
  bool roll_journal();
  /// Would that make it smaller by a part that is worth it? Less is worth it for what the stream itself wants to write.
  bool is_worth_rolling(bool for_itself = false) const;
  /// Would it if steps were dropped?
  bool drops_shorten_journal() const;

  /// Tells writers and readers that the stream is no more.
  void removed();
  /// The end counts also where it cannot be written down, which is the error returned: nobody waits for a group that
  /// is no more. A restarted server would not know of it, and wait for the group.
  Result<void> group_ended(std::uint32_t incarnation, StreamStatus status, const std::string& text);
  void fail_stream(const std::string& text);
  /// Nothing can be added to its journal; the stream fails.
  void set_damaged(const std::string& damage);
  /// What is wrong with the journal, or empty.
  const std::string& damage() const noexcept { return damage_; }
  /// Records at the journal's end are gone since the last start.
  void set_end_cut() noexcept { end_cut_ = true; }
  /// Where records are gone: steps that claim any of this space, which another has, were dropped by them.
  void give_way(const Extent& extent);

  /// Something that is not durable lies in this segment, or may come to lie there with the open step.
  bool writes_unsynced_in(std::uint32_t segment) const;

  /// Newest step that is durable for everyone to see: the journal that says so is synced.
  std::uint64_t durable_next() const noexcept { return flusher_.durable_next(); }

  StreamInfo info() const;
  StepSummary summary(const storage::StepState& step) const;
  std::uint64_t kept_bytes() const;
  /// All space that its steps hold, kept and withdrawn ones.
  std::vector<Extent> extents_of_steps() const;
  /// Space of dropped steps whose drop is not durable yet.
  std::uint64_t unsynced_bytes() const;
  wire::StepsAnswerT list_steps(std::uint64_t first, std::uint32_t steps_max) const;
  /// Steps with a receipt lose their preciousness.
  Result<void> mark_staged(std::uint32_t epoch, const std::vector<std::uint64_t>& steps, const std::string& receipt);

  /// A withdrawn step was unpinned for the last time.
  void retired_unpinned(const StepKey& key);
  /// Space of dropped durable steps whose drop has become durable.
  void release_after_sync(std::vector<Extent> extents);
  bool waits_for_journal_sync() const noexcept { return !unsynced_releases_.empty(); }
  /// The same, or a sync under way frees space. A failed stream syncs nothing any more.
  bool frees_with_sync() const {
    return state_.status != StreamStatus::failed && (waits_for_journal_sync() || flusher_.bytes_in_release() > 0);
  }
  std::vector<std::vector<Extent>> take_unsynced_releases();
  /// The sync that was to make these free did not come to its end.
  void put_back_unsynced_releases(std::vector<std::vector<Extent>> releases);

  /// Grace time after a group was lost, over which followers wait for a restart.
  bool grace_over() const noexcept { return grace_over_; }
  void begin_grace(std::int64_t grace_ms);
  /// After a restart of the server: what is left of the lost group's grace.
  void resume_grace();

 private:
  /// Runs the task in the loop, after what is being handled, unless the stream is gone by then.
  void post(std::function<void()> task);
  Result<void> append(storage::RecordType type, std::span<const std::uint8_t> body);
  Result<void> applied(Result<void> result);
  bool should_roll() const;
  /// Would rolling the journal make it smaller by more than that, about? After it could not be done: by some more.
  bool rolling_frees(std::uint64_t bytes) const;
  void post_roll();
  /// Appends a record that withdraws the steps from `first` on, and frees them.
  template <class Record>
  Result<void> record_withdrawal(storage::RecordType type, Record change, std::uint64_t first);
  bool may_drop(const storage::StepState& step, bool when_full) const;
  /// False if that could not be written down: then they stay.
  bool drop(const std::vector<std::uint64_t>& steps);
  void free_step(const storage::StepState& step, bool durable);

  Reservation& reservation_;
  const std::uint64_t number_;
  std::string damage_;
  bool end_cut_ = false;
  storage::StreamState state_;
  std::shared_ptr<storage::Journal> journal_;  ///< shared with a sync in the worker
  std::vector<std::vector<Extent>> unsynced_releases_;
  std::optional<EventLoop::TimerId> grace_timer_;
  bool grace_over_ = true;
  bool roll_posted_ = false;
  JournalWaste waste_;
  std::uint64_t roll_refused_below_ = 0;
  WriterGroup group_;
  Followers followers_;
  Flusher flusher_;
};

/// All space that a step holds.
std::vector<Extent> extents_of(const journal::StepCommittedT& step);

}  // namespace forebay::server
