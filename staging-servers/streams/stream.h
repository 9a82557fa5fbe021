// SPDX-License-Identifier: Apache-2.0
// A stream at run time: its journal and state, its writer group, its followers, its flusher. Every change of what
// exists goes through record(): append to the journal, then apply to the state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <forebay/reader.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/return_error.h"
#include "loop/event_loop.h"
#include "loop/worker.h"
#include "members/member_link.h"
#include "protocol/message.h"
#include "readers/followers.h"
#include "readers/reader_registry.h"
#include "space/reservation_space.h"
#include "storage/journal.h"
#include "storage/stream_state.h"
#include "streams/attribute_sets.h"
#include "streams/flusher.h"
#include "streams/recent_commits.h"
#include "streams/stream_journal.h"
#include "writers/writer_group.h"

namespace forebay::server {

/// What streams use of their server. All of it outlives them.
struct StreamServices {
  EventLoop& loop;
  Device& device;
  storage::ReservationStore& store;
  Worker& sync_worker;     ///< syncs, side by side
  Worker& errand_worker;   ///< what else takes long; users' jobs in turns
  Worker& counter_worker;  ///< what is counted beside a sync
  ReaderRegistry& readers;
  std::uint64_t storage_incarnation = 0;  ///< of the server's root (daemon/root_files.h)
  std::int64_t flush_interval_ms = 0;  ///< how long a committed step may wait to be made durable; < 0: only on request
  std::int64_t restart_grace_ms = 0;   ///< how long writer groups have to come back after a restart of the server
  std::string root_uuid;               ///< of the server's root: which member of its reservations it is
  std::uint64_t server_run = 0;
  MemberLinks* members = nullptr;         ///< ways to the servers of other members; null: there are none
  std::int64_t member_silence_ms = 0;     ///< how long a share serves without a word of its home
  MappingUsers* mapping_users = nullptr;  ///< of all shares
};

class Stream final : public WrittenStream, public FollowedStream {
 public:
  /// `sets`: those of the state's steps, and those that its ranks hold.
  Stream(const StreamServices& services, ReservationSpace& space, std::uint64_t number, storage::StreamState state,
         std::shared_ptr<storage::Journal> journal, const JournalWaste& waste, AttributeSets sets = {});
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const StreamServices& services() const noexcept { return services_; }
  ReservationSpace& space() noexcept { return space_; }
  const storage::StreamState& state() const noexcept override { return state_; }
  StreamJournal& journal() noexcept { return journal_; }
  JournalInRoom& journal_in_room() noexcept override { return journal_; }
  const JournalInRoom& journal_in_room() const noexcept override { return journal_; }
  const std::string& name() const noexcept { return state_.name; }
  std::string path() const override { return space_.reservation() + "/" + state_.name; }
  std::uint64_t number() const noexcept { return number_; }
  WriterGroup& group() noexcept { return group_; }
  Followers& followers() noexcept { return followers_; }
  Flusher& flusher() noexcept { return flusher_; }

  /// Appends and applies. A failure to append makes the stream failed.
  template <class Record>
  Result<void> record(storage::RecordType type, Record change) {
    const auto body = protocol::pack(change);
    RETURN_IF_ERROR(append(type, {body.data(), body.size()}));
    auto result = applied(state_.apply(std::move(change)));
    if (journal_.should_roll()) post_roll();
    return result;
  }

  Result<void> commit(journal::StepCommittedT step) override;
  /// Withdraws the steps from `first` on in a new epoch; consumers beyond it are set back.
  Result<void> withdraw(std::uint64_t first);
  Result<void> form_group(journal::GroupFormedT formed) override;
  Result<void> note_rank_closed(journal::RankClosedT closed) override;
  Result<void> note_cursor(journal::CursorMovedT moved) override;
  /// Drops what retention allows to go.
  void apply_retention() override;
  /// To be called when what may go has changed, by a pin, a cursor, a receipt or a rule: drops what retention allows to
  /// go, and whoever waits for space may have what he could not have before.
  void what_may_go_changed() override;
  bool drop_oldest() override;
  bool drops_when_let_go() const override;
  bool may_free_space() const override;
  bool owns(const Owner& owner) const override { return group_.owns(owner); }
  bool all_grants_known() const override { return group_.is_complete(); }
  std::uint64_t granted_bytes() const override { return group_.granted_bytes(); }
  std::set<uid_t> writing_users() const override { return group_.users(); }
  void segment_misused(const std::string& what) override { group_.segment_misused(what); }
  bool is_read_by_others_in(std::uint32_t segment, const std::set<uid_t>& users) const override;
  std::uint64_t bytes_that_commits_free() const override;
  Result<void> note_owned(journal::SegmentsOwnedT owned) override;
  Result<void> note_left(journal::SegmentsLeftT left) override;
  Holding holding() const override;

  /// Tells writers and readers that the stream is no more.
  void removed();
  Result<void> group_ended(std::uint32_t incarnation, StreamStatus status, const std::string& text) override;
  void writer_refused(const std::string& run, const std::string& why) override;
  void fail_stream(const std::string& text) override;
  /// Nothing can be added to its journal; the stream fails.
  void set_damaged(const std::string& damage);
  /// What is wrong with the journal, or empty.
  const std::string& damage() const noexcept { return damage_; }
  /// Records at the journal's end are gone since the last start.
  void set_end_cut() noexcept { end_cut_ = true; }
  void give_way(const Extent& extent) override;
  bool writes_unsynced_in(std::uint32_t segment) const override;

  std::uint64_t storage_incarnation() const noexcept override { return services_.storage_incarnation; }
  /// The journal that says so is synced.
  std::uint64_t durable_next() const noexcept override { return flusher_.durable_next(); }
  void make_durable_soon() override { flusher_.request(true); }
  void readers_changed() override { group_.readers_changed(); }
  void readers_moved() override { group_.readers_moved(); }

  StreamInfo info() const;
  StepSummary summary(const storage::StepState& step) const override;
  bool committed_lately(const StepKey& key) const override { return recent_commits_.has(key, monotonic_ns()); }
  std::uint64_t kept_bytes() const;
  /// All space that its steps hold, kept and withdrawn ones, and their attribute sets.
  std::vector<Extent> extents_of_steps() const;
  /// All space that it holds: of steps, of grants, and what is free with the next sync.
  std::vector<Extent> extents_held() const;
  /// Ends the process if an invariant is broken; how many things were looked at.
  std::size_t check() const;
  const AttributeSets& sets() const noexcept { return sets_; }
  std::uint64_t unsynced_bytes() const override { return flusher_.bytes_to_release(); }
  /// Steps with a receipt lose their preciousness.
  Result<void> mark_staged(std::uint32_t epoch, const std::vector<std::uint64_t>& steps, const std::string& receipt);

  /// Steps that were not durable and have a part on one of these members, whose storage is another one since, are lost;
  /// false if there were none. What readers hold of them stays as it is, and counts as lost.
  bool lose_steps(const std::map<std::uint16_t, std::uint64_t>& incarnations);

  /// The same for these steps, each with the reason, durable or not. False if the journal takes no record.
  bool lose(const std::map<StepKey, std::string>& steps);
  /// The same for all that have a part on a member whose server was given up.
  void lose_all_on(std::uint16_t member);

  /// Drops steps whatever retention says, all or none: refused where somebody still needs one.
  Result<void> drop_steps(const std::vector<std::uint64_t>& steps);

  void unpinned(const StepKey& key) override;
  /// A failed stream syncs nothing any more.
  bool frees_with_sync() const override {
    return state_.status != StreamStatus::failed && flusher_.bytes_to_release() > 0;
  }
  void hurry_releases() override { flusher_.hurry_releases(); }

  /// Grace time after a group was lost, over which followers wait for a restart.
  bool grace_over() const noexcept override { return grace_over_; }
  bool has_living_writer() override { return group_.lives(); }
  std::string describe_grace() const override;
  void begin_grace(std::int64_t grace_ms) override;
  /// After a restart of the server: what is left of the lost group's grace.
  void resume_grace();

 private:
  /// Runs the task in the loop, after what is being handled, unless the stream is gone by then.
  void post(std::function<void()> task);
  Result<void> append(storage::RecordType type, std::span<const std::uint8_t> body);
  Result<void> applied(Result<void> result);
  void post_roll();
  /// Appends a record that withdraws the steps from `first` on, and frees them.
  template <class Record>
  Result<void> record_withdrawal(storage::RecordType type, Record change, std::uint64_t first);
  /// Neither is it held, nor does a rule keep it for itself. Whether newer steps and consumers allow it is not asked.
  bool may_drop(const storage::StepState& step) const;
  /// Of the first steps, which retention keeps until the stream has ended.
  bool is_kept_first(std::uint64_t number) const;
  /// Why the step may not be dropped on request: who needs it. Empty: nobody does.
  std::string need_of(const storage::StepState& step, std::uint64_t first_needed) const;
  /// False if that could not be written down: then they stay.
  bool drop(const std::vector<std::uint64_t>& steps);
  /// The same of steps that are lost, kept or retired before. `why`: for writers that wait for one to be durable.
  bool record_lost(const std::vector<StepKey>& steps, const std::string& why);
  /// The same, and they do not come back with the power of this server.
  bool record_lost_for_good(const std::vector<StepKey>& steps, const std::string& why);
  /// Of retired steps, those that nobody holds. `durable_next`: as it was before they were retired.
  void free_unheld(const std::vector<StepKey>& steps, std::uint64_t durable_next);
  /// Nobody holds the step any more. What lies below `durable_next` may be in a journal that survives a loss of power.
  void free_step(const storage::StepState& step, std::uint64_t durable_next);
  void let_go(const journal::AttributeSetT& set, std::uint64_t durable_next);
  /// `durable`: free once the journal is synced, else at once.
  void free_space(std::vector<Extent> extents, bool durable);
  /// After a record that may have changed which sets ranks hold. `durable_next`: as it was before that record.
  void follow_held_sets(std::uint64_t durable_next);

  const StreamServices& services_;
  ReservationSpace& space_;
  const std::uint64_t number_;
  std::string damage_;
  bool end_cut_ = false;
  std::uint64_t committed_bytes_ = 0;  ///< since the server was started
  RecentCommits recent_commits_;
  storage::StreamState state_;
  AttributeSets sets_;
  std::map<std::uint32_t, journal::AttributeSetT> held_sets_;  ///< those of the state that are counted in `sets_`
  StreamJournal journal_;
  std::optional<EventLoop::TimerId> grace_timer_;
  bool grace_over_ = true;
  bool roll_posted_ = false;
  Followers followers_;
  WriterGroup group_;
  Flusher flusher_;
  /// Outlives the stream in what was posted.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace forebay::server
