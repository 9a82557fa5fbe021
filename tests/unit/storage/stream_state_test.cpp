// SPDX-License-Identifier: Apache-2.0
#include "storage/stream_state.h"

#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "storage/record_check.h"
#include "tests/unit/storage/stream_records.h"

namespace forebay::storage {
namespace {

/// The record is refused as corrupt and leaves the state as it was.
template <class RecordT>
void expect_contradiction(StreamState& state, RecordT record, const std::string& why) {
  const auto before = bytes_of_state(state);
  const auto applied = state.apply(record_type_of<RecordT>, body_of(record));
  ASSERT_FALSE(applied) << why;
  EXPECT_EQ(applied.error().code, ErrorCode::corrupt) << why;
  EXPECT_FALSE(applied.error().what.empty()) << why;
  EXPECT_NE(applied.error().where.find("of stream flow"), std::string::npos) << applied.error().where;
  EXPECT_EQ(bytes_of_state(state), before) << why;
}

journal::StepsDroppedT dropped(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> ranges) {
  journal::StepsDroppedT record;
  for (const auto& [first, last] : ranges) record.ranges.emplace_back(first, last);
  return record;
}

journal::StepsWithdrawnT withdrawn(std::uint64_t first, std::uint32_t epoch) {
  journal::StepsWithdrawnT record;
  record.first = first;
  record.epoch = epoch;
  return record;
}

journal::DurableToT durable_to(std::uint64_t step, std::uint32_t epoch) {
  journal::DurableToT record;
  record.step = step;
  record.epoch = epoch;
  return record;
}

journal::CursorMovedT cursor_moved(const std::string& consumer, std::uint32_t epoch, std::uint64_t position) {
  journal::CursorMovedT record;
  record.consumer = consumer;
  record.epoch = epoch;
  record.position = position;
  return record;
}

journal::GroupEndedT group_ended(std::uint32_t incarnation, StreamStatus status) {
  journal::GroupEndedT record;
  record.incarnation = incarnation;
  record.status = static_cast<std::uint8_t>(status);
  record.text = "why";
  return record;
}

journal::StepsStagedT staged(std::uint32_t epoch, std::vector<std::uint64_t> steps) {
  journal::StepsStagedT record;
  record.epoch = epoch;
  record.steps = std::move(steps);
  record.receipt = "receipt-" + std::to_string(epoch);
  return record;
}

std::vector<std::uint64_t> numbers(const StreamState& state) {
  std::vector<std::uint64_t> kept;
  for (const auto& [number, step] : state.steps) kept.push_back(number);
  return kept;
}

using Numbers = std::vector<std::uint64_t>;

/// The next step, which takes this number.
journal::StepCommittedT numbered(const StreamState& state, std::uint64_t number) {
  auto record = step_committed(state);
  record.step = number;
  if (number != state.next_step) record.leaves_out_from = state.next_step;
  return record;
}

StreamState state_of_numbers(const Numbers& taken) {
  StreamState state = state_with_steps(0);
  for (const std::uint64_t number : taken) EXPECT_TRUE(state.apply(numbered(state, number)));
  return state;
}

TEST(StreamState, a_fresh_stream_waits_in_epoch_one) {
  const StreamState state = StreamState::fresh(test_uuid, "flow", 5);
  EXPECT_EQ(state.status, StreamStatus::waiting);
  EXPECT_EQ(state.epoch, 1U);
  EXPECT_EQ(state.next_step, 0U);
  EXPECT_TRUE(state.retention.keeps_all());
}

TEST(StreamState, committed_steps_are_kept_in_order) {
  const StreamState state = state_with_steps(3, 2);
  EXPECT_EQ(numbers(state), (Numbers{0, 1, 2}));
  EXPECT_EQ(state.next_step, 3U);
  EXPECT_EQ(state.status, StreamStatus::live);
  EXPECT_EQ(state.steps.at(2).committed.parts.size(), 2U);
}

/// The next step, whose parts refer to the sets that this step brings or brought.
journal::StepCommittedT step_with_sets(const StreamState& state, std::uint64_t from) {
  auto record = step_committed(state);
  for (auto& part : record.parts) part->attributes = attribute_set(from, part->rank);
  return record;
}

TEST(StreamState, attribute_sets_are_held_by_the_ranks_of_a_living_group) {
  StreamState state = state_with_steps(0, 2);
  ASSERT_TRUE(state.apply(step_with_sets(state, 0)));
  ASSERT_TRUE(state.apply(step_with_sets(state, 0)));
  EXPECT_EQ(state.held_attributes.size(), 2U);
  ASSERT_TRUE(state.apply(dropped({{0, 1}})));
  EXPECT_EQ(bytes_of_state(state_from_checkpoint(state)), bytes_of_state(state));
  ASSERT_TRUE(state.apply(step_with_sets(state, 0)));
  ASSERT_TRUE(state.apply(step_with_sets(state, 3)));
  expect_contradiction(state, step_with_sets(state, 0), "a set that is held no longer");
  auto without = step_committed(state);
  without.parts[1]->attributes = attribute_set(3, 1);
  ASSERT_TRUE(state.apply(without));
  ASSERT_EQ(state.held_attributes.size(), 1U);
  EXPECT_EQ(state.held_attributes.at(1).step, 3U);
  EXPECT_EQ(bytes_of_state(state_from_checkpoint(state)), bytes_of_state(state));

  StreamState ended = state;
  ASSERT_TRUE(ended.apply(group_ended(1, StreamStatus::ended)));
  EXPECT_TRUE(ended.held_attributes.empty());
  StreamState withdrawing = state;
  ASSERT_TRUE(withdrawing.apply(withdrawn(3, 2)));
  EXPECT_TRUE(withdrawing.held_attributes.empty());
  StreamState next_group = state;
  ASSERT_TRUE(next_group.apply(group_formed(next_group, 2, 2)));
  EXPECT_TRUE(next_group.held_attributes.empty());
  expect_contradiction(next_group, without, "a set of an older group");
}

TEST(StreamState, attribute_sets_that_nobody_brought_are_refused) {
  StreamState state = state_with_steps(2, 2);
  expect_contradiction(state, step_with_sets(state, 1), "a set of a step that brought none");
  expect_contradiction(state, step_with_sets(state, 3), "a set of a step to come");
  ASSERT_TRUE(state.apply(step_with_sets(state, 2)));
  const auto with = [&](const std::function<void(journal::AttributeSetT&)>& change, std::uint64_t from) {
    auto record = step_with_sets(state, from);
    change(*record.parts[1]->attributes);
    return record;
  };
  expect_contradiction(state, with([](auto& set) { ++set.crc; }, 2), "another checksum");
  expect_contradiction(state, with([](auto& set) { --set.bytes; }, 2), "another size");
  expect_contradiction(state, with([](auto& set) { set = *attribute_set(2, 0); }, 2), "another rank's");
  expect_contradiction(state, with([](auto& set) { set.bytes = 0; }, 3), "nothing");
  expect_contradiction(state, with([](auto& set) { set.bytes = 8193; }, 3), "too little space");
  expect_contradiction(state, with([](auto& set) { set.bytes = 4096; }, 3), "too much space");
  expect_contradiction(state, with([](auto& set) { set.extents.clear(); }, 3), "no space");
  expect_contradiction(state, with([](auto& set) { set.extents[0] = {0, 0, 0, 100, 8192}; }, 3), "not in units");
  ASSERT_TRUE(state.apply(step_with_sets(state, 3)));
}

TEST(StreamState, a_step_may_leave_numbers_out) {
  StreamState state = state_of_numbers({3, 4, 9});
  EXPECT_EQ(numbers(state), (Numbers{3, 4, 9}));
  EXPECT_EQ(state.next_step, 10U);
  const auto with = [&](std::uint64_t number, std::uint64_t from) {
    auto record = numbered(state, number);
    record.leaves_out_from = from;
    return record;
  };
  expect_contradiction(state, with(10, 10), "it leaves nothing out");
  expect_contradiction(state, with(12, 9), "numbers from a step that exists on");
  expect_contradiction(state, with(12, 11), "numbers from a later one on");
  expect_contradiction(state, with(9, 10), "a number that was given");
  EXPECT_EQ(bytes_of_state(state_from_checkpoint(state)), bytes_of_state(state));
}

TEST(StreamState, numbers_that_were_left_out_do_not_count_as_steps) {
  StreamState state = state_of_numbers({3, 4, 9, 12});
  const auto since = [&](std::uint64_t number) { return state.committed_since(number); };
  EXPECT_EQ(since(0), 4U);
  EXPECT_EQ(since(4), 3U);
  EXPECT_EQ(since(5), 2U);
  EXPECT_EQ(since(10), 1U);
  EXPECT_EQ(since(13), 0U);
  const auto is_among_last = [&](std::uint64_t number, std::uint64_t steps) {
    return number >= state.oldest_of_last(steps);
  };
  EXPECT_TRUE(is_among_last(12, 1));
  EXPECT_FALSE(is_among_last(9, 1));
  EXPECT_TRUE(is_among_last(9, 2));
  EXPECT_FALSE(is_among_last(4, 2));
  EXPECT_TRUE(is_among_last(3, 4));
  EXPECT_EQ(state.oldest_of_last(5), 0U);
  // A step that was dropped from among them counts on.
  ASSERT_TRUE(state.apply(dropped({{4, 4}})));
  EXPECT_EQ(since(4), 3U);
  EXPECT_TRUE(is_among_last(9, 2));
  EXPECT_FALSE(is_among_last(3, 3));
  ASSERT_TRUE(state.apply(dropped({{3, 3}})));
  EXPECT_EQ(since(5), 2U);
  StreamState plain = state_with_steps(9);
  ASSERT_TRUE(plain.apply(dropped({{0, 2}})));
  EXPECT_EQ(plain.committed_since(1), 8U);
  EXPECT_EQ(plain.oldest_of_last(4), 5U);
  EXPECT_EQ(plain.oldest_of_last(20), 0U);
}

TEST(StreamState, knows_where_epochs_begin_whatever_was_dropped) {
  StreamState state = state_with_steps(8);
  ASSERT_TRUE(state.apply(withdrawn(5, 2)));
  for (int step = 0; step < 5; ++step) ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(withdrawn(9, 3)));
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(dropped({{0, 10}})));
  EXPECT_EQ(state.in_this_epoch(1, 4), 4U);
  EXPECT_EQ(state.in_this_epoch(1, 8), 5U);
  EXPECT_EQ(state.in_this_epoch(2, 9), 9U);
  EXPECT_EQ(state.in_this_epoch(2, 11), 9U);
  EXPECT_EQ(state.in_this_epoch(3, 11), 11U);
  EXPECT_EQ(bytes_of_state(state_from_checkpoint(state)), bytes_of_state(state));
  ASSERT_TRUE(state.apply(withdrawn(3, 4)));
  EXPECT_EQ(state.epochs.size(), 1U);
  EXPECT_EQ(state.in_this_epoch(2, 9), 3U);
  for (std::uint32_t epoch = 5; epoch < 1000; ++epoch) {
    ASSERT_TRUE(state.apply(step_committed(state)));
    ASSERT_TRUE(state.apply(withdrawn(state.next_step, epoch)));
  }
  EXPECT_EQ(state.epochs.size(), 256U);
  EXPECT_EQ(state.in_this_epoch(1, 9), 3U);
  EXPECT_EQ(bytes_of_state(state_from_checkpoint(state)), bytes_of_state(state));
}

TEST(StreamState, a_checkpoint_says_where_its_epochs_begin) {
  StreamState state = state_with_steps(8);
  ASSERT_TRUE(state.apply(withdrawn(5, 2)));
  const auto refused = [&](const std::function<void(journal::CheckpointT&)>& change) {
    auto record = checkpoint_of(state);
    change(record);
    StreamState loaded;
    return !loaded.apply(std::move(record));
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& record) { record.epochs.clear(); })) << "not said";
  EXPECT_TRUE(refused([](auto& record) { record.epochs[0]->first = 6; })) << "beyond the next step";
  EXPECT_TRUE(refused([](auto& record) { record.epochs[0]->epoch = 3; })) << "an epoch to come";
  EXPECT_TRUE(refused([](auto& record) { record.epochs[0]->epoch = 1; })) << "an epoch that was there";
  EXPECT_TRUE(refused([](auto& record) {
    record.epochs.push_back(std::make_unique<journal::EpochBegunT>(*record.epochs[0]));
  })) << "twice";
}

TEST(StreamState, a_commit_that_does_not_follow_is_refused) {
  StreamState state = state_with_steps(3, 2);
  const auto with = [&](const std::function<void(journal::StepCommittedT&)>& change) {
    auto record = step_committed(state);
    change(record);
    return record;
  };
  const auto part = [](journal::StepCommittedT& record) -> journal::PartT& { return *record.parts[0]; };
  expect_contradiction(state, with([](auto& r) { r.step = 2; }), "a step that exists");
  expect_contradiction(state, with([](auto& r) { r.step = 4; }), "a step that leaves one out");
  expect_contradiction(state, with([](auto& r) { r.epoch = 2; }), "another epoch");
  expect_contradiction(state, with([](auto& r) { r.incarnation = 2; }), "another group");
  expect_contradiction(state, with([](auto& r) { r.parts.pop_back(); }), "a part is missing: half a step");
  expect_contradiction(state, with([](auto& r) { r.parts[1]->rank = 0; }), "two parts of one rank");
  expect_contradiction(state, with([](auto& r) { r.parts[1]->rank = 2; }), "a rank that the group does not have");
  expect_contradiction(state, with([&](auto& r) { part(r).metadata.clear(); }), "metadata, but no place");
  expect_contradiction(state, with([&](auto& r) { part(r).metadata_bytes = 301; }), "metadata larger than its place");
  expect_contradiction(state, with([&](auto& r) { part(r).extents[0] = {0, 0, 0, 0, 0}; }), "an empty extent");
  expect_contradiction(state, with([&](auto& r) { part(r).extents[0] = {0, 0, 0, 100, 4096}; }),
                       "an extent off its unit");
  expect_contradiction(state, with([&](auto& r) { part(r).extents[0] = {0, 0, 0, ~std::uint64_t{4095}, 8192}; }),
                       "an extent past the end of numbers");
  expect_contradiction(state, with([&](auto& r) { part(r).extents.assign(3, {0, 0, 0, 0, std::uint64_t{1} << 63}); }),
                       "lengths that overflow");
  EXPECT_TRUE(state.apply(step_committed(state)));
}

TEST(StreamState, no_step_is_committed_without_a_group_at_work) {
  StreamState fresh = StreamState::fresh(test_uuid, "flow", 5);
  expect_contradiction(fresh, step_committed(fresh), "no group");
  for (const StreamStatus status : {StreamStatus::ended, StreamStatus::interrupted}) {
    StreamState state = state_with_steps(1);
    ASSERT_TRUE(state.apply(group_ended(1, status)));
    expect_contradiction(state, step_committed(state), "the group has ended");
  }
}

TEST(StreamState, a_group_must_be_newer_and_know_where_it_goes_on) {
  StreamState state = state_with_steps(2);
  auto record = group_formed(state, 1, 1);
  expect_contradiction(state, record, "the same incarnation");
  record = group_formed(state, 2, 0);
  expect_contradiction(state, record, "no ranks");
  // A server would keep a place for each.
  record = group_formed(state, 2, ranks_max + 1);
  expect_contradiction(state, record, "more ranks than a group can have");
  record = group_formed(state, 2, 1);
  record.next_step = 1;
  expect_contradiction(state, record, "another step");
  record = group_formed(state, 2, 1);
  record.epoch = 2;
  expect_contradiction(state, record, "another epoch");
  ASSERT_TRUE(state.apply(group_ended(1, StreamStatus::interrupted)));
  ASSERT_TRUE(state.apply(group_formed(state, 2, 1)));
  EXPECT_EQ(state.status, StreamStatus::live);
  EXPECT_EQ(state.status_text, "");
}

TEST(StreamState, a_group_may_withdraw_what_it_goes_on_before) {
  StreamState state = state_with_steps(5);
  auto record = group_formed(state, 2, 1);
  record.epoch = 2;
  record.withdraws_from = 3;
  expect_contradiction(state, record, "withdraws from one step and goes on with another");
  record.next_step = 3;
  record.retention = "last:x";
  expect_contradiction(state, record, "no such retention");
  record.retention = "last:2";
  record.epoch = 1;
  expect_contradiction(state, record, "the epoch that lasts");
  record.epoch = 2;
  ASSERT_TRUE(state.apply(record));
  EXPECT_EQ(state.next_step, 3U);
  EXPECT_EQ(state.epoch, 2U);
  EXPECT_EQ(state.steps.size(), 3U);
  EXPECT_EQ(state.retired.size(), 2U);
  EXPECT_EQ(state.retention.last, 2U);
  EXPECT_EQ(state.group->incarnation, 2U);
}

TEST(StreamState, closed_ranks_belong_to_the_last_group) {
  StreamState state = state_with_steps(1, 2);
  journal::RankClosedT record;
  record.incarnation = 1;
  record.rank = 2;
  expect_contradiction(state, record, "no such rank");
  record.rank = 1;
  record.incarnation = 2;
  expect_contradiction(state, record, "no such group");
  record.incarnation = 1;
  ASSERT_TRUE(state.apply(record));
  EXPECT_EQ(state.closed_ranks, std::set<std::uint32_t>{1});
  StreamState loaded = StreamState::fresh(test_uuid, "flow", 0);
  ASSERT_TRUE(loaded.apply(checkpoint_of(state)));
  EXPECT_EQ(loaded.closed_ranks, state.closed_ranks);
  ASSERT_TRUE(state.apply(group_formed(state, 2, 2)));
  EXPECT_TRUE(state.closed_ranks.empty());
}

TEST(StreamState, a_group_may_withdraw_and_set_the_retention_with_the_record_that_forms_it) {
  StreamState state = state_with_steps(5);
  ASSERT_TRUE(state.apply(durable_to(4, 1)));
  auto record = group_formed(state, 2, 1);
  record.withdraws_from = 2;
  record.next_step = 2;
  expect_contradiction(state, record, "the same epoch");
  record.epoch = 2;
  record.next_step = 3;
  expect_contradiction(state, record, "going on elsewhere than where it withdraws");
  record.withdraws_from = 6;
  record.next_step = 6;
  expect_contradiction(state, record, "beyond the next step");
  record.withdraws_from = 2;
  record.next_step = 2;
  record.retention = "newest:3";
  expect_contradiction(state, record, "no retention");
  record.retention = "last:3";
  ASSERT_TRUE(state.apply(record));
  EXPECT_EQ(numbers(state), (Numbers{0, 1}));
  EXPECT_EQ(state.retired.size(), 3U);
  EXPECT_EQ(state.epoch, 2U);
  EXPECT_EQ(state.durable_next, 2U);
  EXPECT_EQ(state.retention.last, 3U);
  EXPECT_TRUE(state.apply(step_committed(state)));
}

TEST(StreamState, closed_ranks_are_of_the_last_group) {
  StreamState state = state_with_steps(1, 3);
  journal::RankClosedT closed;
  closed.incarnation = 1;
  closed.rank = 2;
  ASSERT_TRUE(state.apply(closed));
  EXPECT_TRUE(state.closed_ranks.contains(2));
  closed.rank = 3;
  expect_contradiction(state, closed, "a rank that the group does not have");
  closed.rank = 0;
  closed.incarnation = 2;
  expect_contradiction(state, closed, "another group");
  ASSERT_TRUE(state.apply(group_formed(state, 2, 1)));
  EXPECT_TRUE(state.closed_ranks.empty());
}

TEST(StreamState, the_last_owner_of_a_segment_counts) {
  StreamState state = state_with_steps(0, 2);
  journal::SegmentsOwnedT record;
  record.incarnation = 1;
  record.segments = {4, 5};
  ASSERT_TRUE(state.apply(record));
  record.rank = 1;
  record.segments = {5};
  ASSERT_TRUE(state.apply(record));
  EXPECT_EQ(state.owners.at(4).rank, 0U);
  EXPECT_EQ(state.owners.at(5).rank, 1U);
  record.rank = 2;
  expect_contradiction(state, record, "a rank that the group does not have");
  record.rank = 0;
  record.incarnation = 2;
  expect_contradiction(state, record, "another group");
}

TEST(StreamState, dropped_steps_are_gone) {
  StreamState state = state_with_steps(10);
  ASSERT_TRUE(state.apply(dropped({{0, 2}, {5, 5}, {8, 9}})));
  EXPECT_EQ(numbers(state), (Numbers{3, 4, 6, 7}));
  ASSERT_TRUE(state.apply(dropped({{2, 4}})));
  EXPECT_EQ(numbers(state), (Numbers{6, 7}));
  expect_contradiction(state, dropped({{6, 6}, {0, 5}}), "a range without a step");
  expect_contradiction(state, dropped({{7, 6}}), "a range that ends before it begins");
  expect_contradiction(state, dropped({{8, std::numeric_limits<std::uint64_t>::max()}}), "steps to come");
}

TEST(StreamState, withdrawn_steps_are_retired_and_numbers_given_again) {
  StreamState state = state_with_steps(6);
  ASSERT_TRUE(state.apply(durable_to(4, 1)));
  ASSERT_TRUE(state.apply(cursor_moved("render", 1, 5)));
  ASSERT_TRUE(state.apply(withdrawn(3, 2)));
  EXPECT_EQ(state.epoch, 2U);
  EXPECT_EQ(state.next_step, 3U);
  EXPECT_EQ(state.durable_next, 3U);
  EXPECT_EQ(numbers(state), (Numbers{0, 1, 2}));
  EXPECT_EQ(state.cursors.at("render").epoch, 1U);
  EXPECT_EQ(state.cursors.at("render").position, 5U);
  ASSERT_EQ(state.retired.size(), 3U);
  EXPECT_TRUE(state.retired.contains({1, 3}));
  ASSERT_TRUE(state.apply(group_ended(1, StreamStatus::interrupted)));
  ASSERT_TRUE(state.apply(group_formed(state, 2, 1)));
  ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(withdrawn(0, 5)));
  EXPECT_TRUE(state.retired.contains({1, 3}));
  EXPECT_TRUE(state.retired.contains({2, 3}));
  EXPECT_EQ(state.retired.size(), 7U);
  state.retire_done(1, 3);
  EXPECT_EQ(state.retired.size(), 6U);
}

TEST(StreamState, a_withdrawal_begins_a_new_epoch_at_a_step_that_was_reached) {
  StreamState state = state_with_steps(3);
  expect_contradiction(state, withdrawn(1, 1), "the same epoch");
  expect_contradiction(state, withdrawn(4, 2), "beyond the next step");
  EXPECT_TRUE(state.apply(withdrawn(3, 2)));
}

TEST(StreamState, the_durable_watermark_only_rises) {
  StreamState state = state_with_steps(5);
  expect_contradiction(state, durable_to(5, 1), "a step to come");
  expect_contradiction(state, durable_to(2, 2), "another epoch");
  ASSERT_TRUE(state.apply(durable_to(2, 1)));
  ASSERT_TRUE(state.apply(durable_to(2, 1)));
  EXPECT_EQ(state.durable_next, 3U);
  expect_contradiction(state, durable_to(1, 1), "going back");
  journal::StreamFailedT failed;
  failed.text = "sync failed";
  ASSERT_TRUE(state.apply(failed));
  expect_contradiction(state, durable_to(4, 1), "in a failed stream");
}

TEST(StreamState, staging_takes_preciousness_and_misses_steps_that_were_written_again) {
  StreamState state = state_with_steps(4);
  journal::PreciousSetT precious;
  precious.steps = {1, 2, 99};
  precious.precious = true;
  ASSERT_TRUE(state.apply(precious));
  EXPECT_TRUE(state.steps.at(1).precious());
  ASSERT_TRUE(state.apply(withdrawn(2, 2)));
  ASSERT_TRUE(state.apply(group_formed(state, 2, 1)));
  ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(staged(1, {1, 2, 77})));
  EXPECT_FALSE(state.steps.at(1).precious());
  EXPECT_EQ(*state.steps.at(1).receipt, "receipt-1");
  EXPECT_FALSE(state.steps.at(2).staged);
  ASSERT_TRUE(state.apply(staged(2, {0, 2})));
  EXPECT_TRUE(state.steps.at(2).staged);
  EXPECT_TRUE(state.steps.at(0).staged);
  EXPECT_EQ(state.steps.at(0).receipt, state.steps.at(2).receipt);
  const StreamState loaded = state_from_checkpoint(state);
  EXPECT_EQ(*loaded.steps.at(1).receipt, "receipt-1");
  EXPECT_EQ(*loaded.steps.at(2).receipt, "receipt-2");
  expect_contradiction(state, staged(3, {0}), "an epoch to come");
}

TEST(StreamState, cursors_come_move_and_go) {
  StreamState state = state_with_steps(3);
  ASSERT_TRUE(state.apply(cursor_moved("render", 1, 2)));
  ASSERT_TRUE(state.apply(cursor_moved("render", 1, 0)));
  EXPECT_EQ(state.cursors.at("render").position, 0U);
  expect_contradiction(state, cursor_moved("render", 2, 0), "an epoch to come");
  expect_contradiction(state, cursor_moved("no name", 1, 0), "a bad name");
  journal::CursorRemovedT removed;
  removed.consumer = "post";
  expect_contradiction(state, removed, "no such cursor");
  removed.consumer = "render";
  ASSERT_TRUE(state.apply(removed));
  EXPECT_TRUE(state.cursors.empty());
}

TEST(StreamState, a_failed_stream_stays_failed_until_a_new_group) {
  StreamState state = state_with_steps(2);
  journal::StreamFailedT failed;
  failed.text = "sync failed";
  ASSERT_TRUE(state.apply(failed));
  ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(group_ended(1, StreamStatus::ended)));
  EXPECT_EQ(state.status, StreamStatus::failed);
  EXPECT_EQ(state.status_text, "sync failed");
  ASSERT_TRUE(state.apply(group_formed(state, 2, 1)));
  EXPECT_EQ(state.status, StreamStatus::live);
}

TEST(StreamState, a_group_ends_once_and_in_a_way_that_groups_end) {
  StreamState state = state_with_steps(2);
  expect_contradiction(state, group_ended(2, StreamStatus::ended), "another group");
  expect_contradiction(state, group_ended(1, StreamStatus::failed), "not an end");
  expect_contradiction(state, group_ended(1, static_cast<StreamStatus>(77)), "no status");
  ASSERT_TRUE(state.apply(group_ended(1, StreamStatus::ended)));
  EXPECT_EQ(state.status_text, "why");
  expect_contradiction(state, group_ended(1, StreamStatus::interrupted), "after its end");
}

TEST(StreamState, retention_is_taken_in_its_text_form) {
  StreamState state = state_with_steps(0);
  journal::RetentionSetT set;
  set.retention = "last:3,consumers:render+post,precious:10";
  ASSERT_TRUE(state.apply(set));
  EXPECT_EQ(state.retention.last, 3U);
  EXPECT_EQ(state.retention.precious_every, 10U);
  set.retention = "last:3,first:2";
  ASSERT_TRUE(state.apply(set));
  EXPECT_EQ(state.retention.first, 2U);
  EXPECT_EQ(state_from_checkpoint(state).retention, state.retention);
  set.retention = "middle:3";
  expect_contradiction(state, set, "no retention");
}

TEST(StreamState, a_groups_run_and_its_parts_storage_incarnations_survive_a_checkpoint) {
  StreamState state = state_with_steps(0);
  auto formed = group_formed(state, 2, 1);
  formed.run = "run 17";
  ASSERT_TRUE(state.apply(formed));
  auto step = step_committed(state);
  step.parts.front()->storage_incarnation = 0x123456789abcdef0;
  ASSERT_TRUE(state.apply(step));
  const StreamState loaded = state_from_checkpoint(state);
  EXPECT_EQ(loaded.group->run, "run 17");
  EXPECT_EQ(loaded.steps.at(0).committed.parts.front()->storage_incarnation, 0x123456789abcdef0U);
}

TEST(StreamState, an_unknown_record_type_is_unsupported) {
  StreamState state = state_with_steps(0);
  for (const int type : {0, static_cast<int>(journal::RecordType::MAX) + 1, 65535}) {
    EXPECT_EQ(state.apply(static_cast<journal::RecordType>(type), {}).error().code, ErrorCode::unsupported);
  }
}

TEST(StreamState, segments_that_were_left_have_no_owner) {
  StreamState state = state_with_steps(0, 2);
  journal::SegmentsOwnedT owned;
  owned.incarnation = 1;
  owned.segments = {4, 5};
  ASSERT_TRUE(state.apply(owned));
  journal::SegmentsLeftT left;
  left.segments = {5};
  ASSERT_TRUE(state.apply(left));
  EXPECT_EQ(state.owners.size(), 1U);
  EXPECT_TRUE(state.owners.contains(4));
  left.segments = {4, 5};
  expect_contradiction(state, left, "a segment that it does not have");
  EXPECT_TRUE(state.owners.contains(4));
}

TEST(StreamState, lost_steps_are_kept_no_longer_and_stay_known_as_lost) {
  StreamState state = state_with_steps(4, 1);
  ASSERT_TRUE(state.apply(withdrawn(3, 2)));
  ASSERT_FALSE(state.retired.at({1, 3}).lost);
  journal::StepsLostT lost;
  lost.steps = {journal::StepKey(1, 1), journal::StepKey(1, 3)};
  ASSERT_TRUE(state.apply(lost));
  EXPECT_FALSE(state.steps.contains(1));
  EXPECT_EQ(state.steps.size(), 2U);
  EXPECT_TRUE(state.retired.at({1, 1}).lost);
  EXPECT_TRUE(state.retired.at({1, 3}).lost);
  EXPECT_EQ(state.next_step, 3U);
  state.check();
  lost.steps = {journal::StepKey(1, 2), journal::StepKey(2, 0)};
  expect_contradiction(state, lost, "a step of another epoch");
  EXPECT_TRUE(state.steps.contains(2));
  auto checkpoint = checkpoint_of(state);
  StreamState again;
  ASSERT_TRUE(again.apply(std::move(checkpoint)));
  EXPECT_TRUE(again.retired.at({1, 1}).lost);
  EXPECT_FALSE(again.steps.contains(1));
  again.check();
  // Of the epoch that is written now, too.
  ASSERT_TRUE(state.apply(step_committed(state)));
  lost.steps = {journal::StepKey(2, 3)};
  ASSERT_TRUE(state.apply(lost));
  state.check();
  ASSERT_TRUE(again.apply(checkpoint_of(state)));
  EXPECT_TRUE(again.retired.at({2, 3}).lost);
}

journal::StepsLostT steps_lost(std::initializer_list<std::uint64_t> numbers, std::uint32_t epoch = 1) {
  journal::StepsLostT record;
  for (const std::uint64_t number : numbers) record.steps.emplace_back(epoch, number);
  return record;
}

TEST(StreamState, lost_steps_are_remembered_until_they_would_have_been_dropped) {
  StreamState state = state_with_steps(10);
  ASSERT_TRUE(state.apply(steps_lost({2, 3, 7})));
  ASSERT_TRUE(state.apply(steps_lost({1})));
  const std::vector<LostSteps> all{{1, 1}, {2, 3}, {7, 7}};
  EXPECT_EQ(state.lost, all);
  EXPECT_TRUE(state.is_lost(3));
  EXPECT_FALSE(state.is_lost(4));
  state.retire_done(1, 2);
  state = state_from_checkpoint(state);
  EXPECT_EQ(state.lost, all);
  state.check();
  ASSERT_TRUE(state.apply(dropped({{4, 8}})));
  EXPECT_EQ(state.lost, all) << "an earlier step is kept";
  ASSERT_TRUE(state.apply(dropped({{0, 0}})));
  EXPECT_EQ(state.lost, all) << "no later step was dropped";
  ASSERT_TRUE(state.apply(step_committed(state)));
  ASSERT_TRUE(state.apply(steps_lost({10})));
  ASSERT_TRUE(state.apply(dropped({{9, 9}})));
  EXPECT_EQ(state.lost, (std::vector<LostSteps>{{10, 10}})) << "the newest was not to be dropped yet";
  ASSERT_TRUE(state.apply(withdrawn(10, 2)));
  EXPECT_TRUE(state.lost.empty());
  state.check();
}

TEST(StreamState, a_precious_step_that_was_lost_is_remembered_until_it_is_withdrawn) {
  StreamState state = state_with_steps(6);
  journal::PreciousSetT precious;
  precious.steps = {1, 2, 3};
  precious.precious = true;
  ASSERT_TRUE(state.apply(precious));
  ASSERT_TRUE(state.apply(steps_lost({0, 1, 2, 3})));
  ASSERT_TRUE(state.apply(dropped({{4, 5}})));
  EXPECT_EQ(state.lost, (std::vector<LostSteps>{{1, 3, true}}));
  EXPECT_EQ(state_from_checkpoint(state).lost, state.lost);
  ASSERT_TRUE(state.apply(withdrawn(3, 2)));
  EXPECT_EQ(state.lost, (std::vector<LostSteps>{{1, 2, true}}));
  state.check();
}

TEST(StreamState, more_lost_steps_than_it_can_name_make_its_oldest_ranges_one) {
  StreamState state = state_with_steps(600);
  for (std::uint64_t number = 1; number < 600; number += 2) ASSERT_TRUE(state.apply(steps_lost({number})));
  EXPECT_EQ(state.lost.size(), 256U);
  state.check();
  for (std::uint64_t number = 0; number < 600; ++number) EXPECT_EQ(state.is_lost(number), number % 2 == 1) << number;
  ASSERT_TRUE(state.apply(steps_lost({2})));
  EXPECT_EQ(state.lost.size(), 256U);
  EXPECT_TRUE(state.is_lost(2));
  state.check();
}

TEST(StreamState, a_checkpoint_that_cannot_be_is_refused) {
  StreamState state = state_with_steps(5, 2);
  ASSERT_TRUE(state.apply(cursor_moved("render", 1, 2)));
  journal::SegmentsOwnedT owned;
  owned.incarnation = 1;
  owned.segments = {3};
  ASSERT_TRUE(state.apply(owned));
  ASSERT_TRUE(state.apply(withdrawn(3, 2)));
  const auto refuse = [&](const char* why, const std::function<void(journal::CheckpointT&)>& change) {
    auto record = checkpoint_of(state);
    change(record);
    expect_contradiction(state, std::move(record), why);
  };
  refuse("not a uuid", [](auto& r) { r.uuid = "17"; });
  refuse("no name", [](auto& r) { r.name = "a/b"; });
  refuse("epoch 0", [](auto& r) { r.epoch = 0; });
  refuse("no status", [](auto& r) { r.status = 9; });
  refuse("live without a group", [](auto& r) {
    r.group.reset();
    r.owners.clear();
  });
  refuse("a group to come", [](auto& r) { r.group->epoch = 3; });
  refuse("a closed rank that the group does not have", [](auto& r) { r.closed_ranks = {2}; });
  refuse("more staged than committed", [](auto& r) { r.staged_next = 4; });
  refuse("more durable than committed", [](auto& r) { r.durable_next = 4; });
  refuse("no retention", [](auto& r) { r.retention = "x"; });
  refuse("two cursors", [](auto& r) { r.cursors.push_back(std::make_unique<journal::CursorMovedT>(*r.cursors[0])); });
  refuse("a cursor to come", [](auto& r) { r.cursors[0]->epoch = 3; });
  refuse("two owners", [](auto& r) { r.owners.push_back(std::make_unique<journal::OwnerT>(*r.owners[0])); });
  refuse("an owner to come", [](auto& r) { r.owners[0]->incarnation = 2; });
  refuse("a step twice", [](auto& r) { r.steps[1]->committed->step = 0; });
  refuse("a step to come", [](auto& r) { r.steps[2]->committed->step = 3; });
  refuse("a step of an epoch to come", [](auto& r) { r.steps[2]->committed->epoch = 3; });
  refuse("a step without its commit", [](auto& r) { r.steps[1]->committed.reset(); });
  refuse("a step with a bad extent", [](auto& r) { r.steps[1]->committed->parts[0]->extents[0] = {}; });
  refuse("a step with a set to come",
         [](auto& r) { r.steps[1]->committed->parts[0]->attributes = attribute_set(2, 0); });
  const auto hold = [](auto& r, std::uint64_t step, std::uint32_t rank) {
    r.held_attributes.push_back(std::make_unique<journal::HeldAttributesT>());
    r.held_attributes.back()->rank = rank;
    r.held_attributes.back()->set = attribute_set(step, rank);
  };
  refuse("a held set to come", [&](auto& r) { hold(r, 3, 0); });
  refuse("a set held by no rank", [&](auto& r) { hold(r, 1, 2); });
  refuse("two sets held by a rank", [&](auto& r) {
    hold(r, 1, 0);
    hold(r, 2, 0);
  });
  refuse("a rank that holds nothing", [&](auto& r) {
    hold(r, 1, 0);
    r.held_attributes[0]->set.reset();
  });
  refuse("a held set without space", [&](auto& r) {
    hold(r, 1, 0);
    r.held_attributes[0]->set->extents.clear();
  });
  refuse("a withdrawn step of an epoch that lasts", [](auto& r) { r.retired[0]->committed->epoch = 2; });
  refuse("a step withdrawn twice", [](auto& r) { r.retired[1]->committed->step = r.retired[0]->committed->step; });
  refuse("a withdrawn step without its commit", [](auto& r) { r.retired[1]->committed.reset(); });
  refuse("a lost step to come", [](auto& r) { r.lost = {journal::LostSteps(2, 3, false)}; });
  refuse("lost steps backwards", [](auto& r) { r.lost = {journal::LostSteps(2, 1, false)}; });
  refuse("a step lost twice",
         [](auto& r) { r.lost = {journal::LostSteps(0, 1, false), journal::LostSteps(1, 2, false)}; });
}

}  // namespace
}  // namespace forebay::storage
