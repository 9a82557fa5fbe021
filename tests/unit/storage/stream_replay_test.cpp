// SPDX-License-Identifier: Apache-2.0
// A stream's state is the same whether it ran, was replayed from its records, or came from a checkpoint; and bodies
// that were tampered with never crash it.
#include <gtest/gtest.h>

#include "tests/support/randomness.h"
#include "tests/unit/storage/journal_fixture.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::storage {
namespace {

using testing::below;
using testing::chance;
using testing::Random;

using Record = std::pair<RecordType, std::vector<std::byte>>;

/// Makes records that a server could write, and applies them.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : random_(seed), state_(StreamState::fresh(test_uuid, "flow", 99)) {}

  const StreamState& state() const { return state_; }
  const std::vector<Record>& records() const { return records_; }

  void step() {
    switch (below(random_, 18)) {
      case 0:
        return form_group();
      case 1:
        return own_segments();
      case 2:
        return drop();
      case 3:
        return chance(random_, 3) ? withdraw() : commit();
      case 4:
        return end_group();
      case 5:
        return make_durable();
      case 6:
        return stage();
      case 7:
        return move_cursor();
      case 8:
        return remove_cursor();
      case 9:
        return set_retention();
      case 10:
        return set_precious();
      case 11:
        return chance(random_, 20) ? stop() : commit();
      case 12:
        return close_rank();
      case 13:
        return leave_segments();
      case 14:
        return chance(random_, 3) ? lose() : commit();
      default:
        return commit();
    }
  }

 private:
  template <class RecordT>
  void record(RecordT record) {
    auto body = body_of(record);
    const auto applied = state_.apply(std::move(record));
    ASSERT_TRUE(applied) << applied.error().message();
    records_.emplace_back(record_type_of<RecordT>, std::move(body));
  }
  bool at_work() const {
    return state_.group && (state_.status == StreamStatus::live || state_.status == StreamStatus::failed);
  }

  void commit() {
    if (!at_work()) return form_group();
    auto made = step_committed(state_);
    made.precious = chance(random_, 5);
    if (chance(random_, 4)) std::ranges::reverse(made.parts);
    record(std::move(made));
  }
  void form_group() {
    incarnation_ += 1 + static_cast<std::uint32_t>(below(random_, 3));
    auto made = group_formed(state_, incarnation_, 1 + static_cast<std::uint32_t>(below(random_, 4)));
    if (chance(random_, 3)) {
      made.withdraws_from = state_.next_step - below(random_, std::min<std::uint64_t>(state_.next_step, 5) + 1);
      made.next_step = *made.withdraws_from;
      made.epoch = state_.epoch + 1;
    }
    if (chance(random_, 4)) made.retention = "last:7";
    record(std::move(made));
  }
  void close_rank() {
    if (!at_work()) return;
    journal::RankClosedT made;
    made.incarnation = state_.group->incarnation;
    made.rank = static_cast<std::uint32_t>(below(random_, state_.group->ranks));
    record(made);
  }
  void own_segments() {
    if (!state_.group) return;
    journal::SegmentsOwnedT made;
    made.incarnation = state_.group->incarnation;
    made.rank = static_cast<std::uint32_t>(below(random_, state_.group->ranks));
    for (std::uint64_t i = below(random_, 4); i > 0; --i)
      made.segments.push_back(static_cast<std::uint32_t>(below(random_, 40)));
    record(std::move(made));
  }
  void leave_segments() {
    journal::SegmentsLeftT made;
    for (const auto& [segment, owner] : state_.owners) {
      if (below(random_, 3) == 0) made.segments.push_back(segment);
    }
    if (!made.segments.empty()) record(std::move(made));
  }
  void drop() {
    if (state_.steps.empty()) return;
    const std::uint64_t first = state_.steps.begin()->first;
    journal::StepsDroppedT made;
    made.ranges.emplace_back(first, first + below(random_, 4));
    record(std::move(made));
  }
  void lose() {
    journal::StepsLostT made;
    for (const auto& [number, step] : state_.steps)
      if (below(random_, 6) == 0) made.steps.emplace_back(step.committed.epoch, number);
    for (const auto& [key, step] : state_.retired)
      if (below(random_, 6) == 0) made.steps.emplace_back(key.first, key.second);
    if (!made.steps.empty()) record(std::move(made));
  }
  void withdraw() {
    journal::StepsWithdrawnT made;
    made.first = state_.next_step - below(random_, std::min<std::uint64_t>(state_.next_step, 5) + 1);
    made.epoch = state_.epoch + 1 + static_cast<std::uint32_t>(below(random_, 2));
    record(std::move(made));
  }
  void end_group() {
    if (!at_work() || !chance(random_, 3)) return;
    journal::GroupEndedT made;
    made.incarnation = state_.group->incarnation;
    made.status = static_cast<std::uint8_t>(chance(random_, 2) ? StreamStatus::ended : StreamStatus::interrupted);
    made.text = "rank 3 was lost";
    record(std::move(made));
  }
  void make_durable() {
    if (state_.durable_next >= state_.next_step || state_.status == StreamStatus::failed) return;
    journal::DurableToT made;
    made.step = state_.durable_next + below(random_, state_.next_step - state_.durable_next);
    made.epoch = state_.epoch;
    for (std::uint64_t i = below(random_, 3); i > 0; --i)
      made.syncs.emplace_back(static_cast<std::uint16_t>(below(random_, 4)), below(random_, 100));
    record(made);
  }
  void stage() {
    journal::StepsStagedT made;
    made.epoch = 1 + static_cast<std::uint32_t>(below(random_, state_.epoch));
    for (std::uint64_t i = below(random_, 5); i > 0; --i) made.steps.push_back(below(random_, state_.next_step + 3));
    made.receipt = "receipt " + std::to_string(below(random_, 1000));
    record(std::move(made));
  }
  void move_cursor() {
    journal::CursorMovedT made;
    made.consumer = "consumer" + std::to_string(below(random_, 3));
    made.epoch = 1 + static_cast<std::uint32_t>(below(random_, state_.epoch));
    made.position = below(random_, state_.next_step + 2);
    record(std::move(made));
  }
  void remove_cursor() {
    if (state_.cursors.empty() || !chance(random_, 3)) return;
    journal::CursorRemovedT made;
    made.consumer = state_.cursors.begin()->first;
    record(std::move(made));
  }
  void set_retention() {
    constexpr const char* rules[] = {"all", "last:3", "consumers:a+b", "last:10,precious:5",
                                     "last:1,consumers:a,precious:2"};
    journal::RetentionSetT made;
    made.retention = rules[below(random_, std::size(rules))];
    record(std::move(made));
  }
  void set_precious() {
    journal::PreciousSetT made;
    for (std::uint64_t i = below(random_, 5); i > 0; --i) made.steps.push_back(below(random_, state_.next_step + 3));
    made.precious = chance(random_, 2);
    record(std::move(made));
  }
  void stop() {
    journal::StreamFailedT made;
    made.text = "a sync failed";
    record(std::move(made));
  }

  Random random_;
  StreamState state_;
  std::uint32_t incarnation_ = 0;
  std::vector<Record> records_;
};

StreamState replayed(StreamState state, std::span<const Record> records) {
  for (const auto& [type, body] : records) {
    const auto applied = state.apply(type, body);
    EXPECT_TRUE(applied) << applied.error().message();
  }
  return state;
}

StreamState from_checkpoint(const StreamState& state) {
  StreamState loaded;
  const auto applied = loaded.apply(RecordType::checkpoint, bytes_of_state(state));
  EXPECT_TRUE(applied) << applied.error().message();
  return loaded;
}

TEST(StreamReplay, checkpoint_and_tail_give_the_state_that_ran) {
  for (std::uint64_t round = 0; round < testing::test_count(300) && !::testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = testing::test_seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomStream stream(seed);
    Random random(seed + 1'000'000);
    std::vector<std::pair<std::size_t, StreamState>> checkpoints;
    checkpoints.emplace_back(0, from_checkpoint(stream.state()));
    for (std::uint64_t steps = 20 + below(random, 150); steps > 0 && !::testing::Test::HasFailure(); --steps) {
      stream.step();
      if (chance(random, 40)) checkpoints.emplace_back(stream.records().size(), from_checkpoint(stream.state()));
    }
    const auto expected = bytes_of_state(stream.state());
    StreamState packed;
    const auto body = *stream.state().checkpoint_body();
    ASSERT_LE(body.size(), stream.state().checkpoint_bytes());
    ASSERT_TRUE(packed.apply(RecordType::checkpoint, std::as_bytes(std::span(body.data(), body.size()))));
    ASSERT_EQ(bytes_of_state(packed), expected);
    for (auto& [at, checkpoint] : checkpoints) {
      const auto tail = std::span(stream.records()).subspan(at);
      ASSERT_EQ(bytes_of_state(replayed(std::move(checkpoint), tail)), expected);
    }
  }
}

TEST(StreamReplay, bodies_that_were_tampered_with_are_refused_or_applied_but_never_crash) {
  for (std::uint64_t round = 0; round < testing::test_count(300); ++round) {
    const std::uint64_t seed = testing::test_seed() + round;
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    RandomStream stream(seed);
    for (int i = 0; i < 40; ++i) stream.step();
    std::vector<Record> records = stream.records();
    records.emplace_back(RecordType::checkpoint, bytes_of_state(stream.state()));
    for (auto& [type, body] : records) {
      for (std::uint64_t change = 1 + below(random, 4); change > 0; --change)
        body[below(random, body.size())] = static_cast<std::byte>(below(random, 256));
      if (chance(random, 4)) body.resize(below(random, body.size()));
      if (chance(random, 8)) type = static_cast<RecordType>(below(random, 18));
      StreamState state = stream.state();
      const auto before = bytes_of_state(state);
      if (!state.apply(type, body)) {
        ASSERT_EQ(bytes_of_state(state), before);
      } else {
        // What was taken is a state that can be written and read again.
        ASSERT_EQ(bytes_of_state(from_checkpoint(state)), bytes_of_state(state));
      }
    }
  }
}

TEST(StreamReplay, a_journal_with_a_checkpoint_of_many_steps_opens_to_the_same_state) {
  const auto directory = testing::TemporaryDirectory::in_memory();
  StreamState state = state_with_steps(100'000);
  flatbuffers::FlatBufferBuilder builder;
  auto journal = Journal::create(posix_device(), directory.path(), pack_body(builder, checkpoint_of(state)));
  ASSERT_TRUE(journal);
  for (int i = 0; i < 1000; ++i) {
    auto record = step_committed(state);
    ASSERT_TRUE((*journal)->append(RecordType::step_committed, pack_body(builder, record)));
    ASSERT_TRUE(state.apply(std::move(record)));
  }
  StreamState opened;
  JournalRecovery recovery;
  ASSERT_TRUE(Journal::open(
      posix_device(), directory.path(),
      [&](RecordType type, std::span<const std::byte> body) { return opened.apply(type, body); }, recovery));
  EXPECT_EQ(opened.steps.size(), 101'000U);
  EXPECT_EQ(bytes_of_state(opened), bytes_of_state(state));
}

}  // namespace
}  // namespace forebay::storage
