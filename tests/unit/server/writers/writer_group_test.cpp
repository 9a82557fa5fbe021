// SPDX-License-Identifier: Apache-2.0
// Writer groups through the raw protocol: forming, fencing, parts, aborts, closes, and space for whole steps.
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Message;
using protocol::MessageType;

class WriterGroupTest : public ServerTest {
 protected:
  static wire::SpaceRequestT space(std::uint64_t step, std::uint64_t bytes) {
    wire::SpaceRequestT request;
    request.step = step;
    request.bytes = bytes;
    return request;
  }
  static wire::StepAbortT abort(std::uint64_t step) {
    wire::StepAbortT request;
    request.step = step;
    return request;
  }
};

TEST_F(WriterGroupTest, a_group_forms_when_its_last_rank_asks) {
  RawClient first = connect();
  RawClient second = connect();
  const auto pending = first.send(MessageType::writer_open, writer_open(0, 2));
  EXPECT_FALSE(first.is_answered(pending));
  const auto opened = RawClient::unpack<wire::WriterOpened>(second.call(MessageType::writer_open, writer_open(1, 2)));
  EXPECT_EQ(opened->incarnation, 1U);
  EXPECT_EQ(opened->next_step, 0U);
  EXPECT_EQ(first.answer(pending).type, MessageType::writer_opened);
}

TEST_F(WriterGroupTest, space_ahead_is_granted_where_there_is_plenty) {
  RawClient client = writer();
  const auto granted = [&](std::uint64_t bytes, std::uint64_t ahead) {
    wire::SpaceRequestT request = space(0, bytes);
    request.ahead_bytes = ahead;
    const auto answer = RawClient::unpack<wire::SpaceGranted>(client.call(MessageType::space_request, request));
    std::uint64_t total = 0;
    for (const wire::Extent& extent : answer->extents) total += extent.length();
    return total;
  };
  EXPECT_EQ(granted(4096, 0), 4096U);
  EXPECT_EQ(granted(4096, 64 << 10), (64U << 10) + 4096);
  EXPECT_EQ(granted(4096, ~std::uint64_t{0} - 4096) % 4096, 0U) << "as much as one answer takes";
  // More and more, until what is left is kept for others.
  while (granted(4096, 4 * mib) > 4096) {
  }
  wire::ReservationsQueryT query;
  query.name = "res";
  const auto info = RawClient::unpack<wire::ReservationsAnswer>(connect().call(MessageType::reservations_query, query));
  const auto& reservation = info->reservations.front();
  EXPECT_GE(reservation->capacity_bytes - reservation->used_bytes, reservation->capacity_bytes / 4 - 4 * mib);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, impossible_ranks_and_options_are_refused) {
  const auto refused = [&](wire::WriterOpenT asked, ErrorCode code) {
    EXPECT_EQ(RawClient::failure(connect().call(MessageType::writer_open, asked)), code);
  };
  refused(writer_open(0, 0), ErrorCode::invalid_argument);
  refused(writer_open(2, 2), ErrorCode::invalid_argument);
  refused(writer_open(0, ~0U), ErrorCode::invalid_argument);
  wire::WriterOpenT asked = writer_open();
  asked.mode = 3;
  refused(asked, ErrorCode::protocol);
  asked = writer_open();
  asked.retention = "last:none";
  refused(asked, ErrorCode::invalid_argument);
  asked = writer_open();
  asked.append_after = 0;
  refused(asked, ErrorCode::invalid_argument);
  asked = writer_open();
  asked.group = std::string(std::size_t{1} << 20, 'g');
  refused(asked, ErrorCode::invalid_argument);
  asked = writer_open();
  asked.run = std::string(5000, 'r');
  refused(asked, ErrorCode::invalid_argument);
  refused(writer_open(0, 1, "files"), ErrorCode::invalid_argument);
  refused(writer_open(0, 1, "../flow"), ErrorCode::invalid_argument);
  asked = writer_open();
  asked.reservation = "none";
  refused(asked, ErrorCode::not_found);
  EXPECT_EQ(writer().call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
}

TEST_F(WriterGroupTest, a_connection_asks_to_write_once) {
  RawClient client = connect();
  const auto first = client.send(MessageType::writer_open, writer_open(0, 2));
  EXPECT_EQ(RawClient::failure(client.call(MessageType::writer_open, writer_open(1, 2))), ErrorCode::protocol);
  EXPECT_TRUE(client.ended());
  (void)first;
  // Nothing of it is left: two others form the group.
  RawClient rank0 = connect();
  RawClient rank1 = connect();
  const auto pending = rank0.send(MessageType::writer_open, writer_open(0, 2));
  EXPECT_EQ(rank1.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  EXPECT_EQ(rank0.answer(pending).type, MessageType::writer_opened);
}

TEST_F(WriterGroupTest, a_missing_rank_fails_the_open_at_the_deadline) {
  wire::WriterOpenT asked = writer_open(1, 3);
  asked.open_timeout_ms = 1;
  const Message answer = connect().call(MessageType::writer_open, asked);
  EXPECT_EQ(RawClient::failure(answer), ErrorCode::timeout);
  EXPECT_NE(protocol::failure_of(answer).what.find("rank 0, 2 of 3"), std::string::npos);
}

TEST_F(WriterGroupTest, a_part_that_is_sent_again_is_committed_once) {
  RawClient client = writer();
  const wire::PartT part = part_of(client, 0);
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  const wire::PartT next = part_of(client, 1);
  EXPECT_EQ(client.call(MessageType::part, next).type, MessageType::committed);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, a_part_of_a_later_step_or_twice_for_one_is_refused) {
  RawClient first = connect();
  RawClient second = connect();
  const auto pending = first.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(second.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(first.answer(pending).type, MessageType::writer_opened);
  wire::PartT part = part_of(first, 0);
  const auto sent = first.send(MessageType::part, part);
  EXPECT_EQ(RawClient::failure(first.call(MessageType::part, part)), ErrorCode::protocol);
  wire::PartT later = part_of(second, 0);
  later.step = 1;
  EXPECT_EQ(RawClient::failure(second.call(MessageType::part, later)), ErrorCode::protocol);
  later.step = 0;
  EXPECT_EQ(second.call(MessageType::part, later).type, MessageType::committed);
  EXPECT_EQ(first.answer(sent).type, MessageType::committed);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, a_fenced_rank_gets_no_descriptors_of_the_newer_group) {
  RawClient old = connect();
  RawClient lost = connect();
  const auto pending = old.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(lost.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(old.answer(pending).type, MessageType::writer_opened);
  lost = connect();  // its first connection ends
  expect_alive();
  RawClient newer = writer();
  const wire::PartT part = part_of(newer, 0);
  wire::SegmentsGetT wanted;
  wanted.segments.push_back(part.extents[0].segment());
  EXPECT_EQ(RawClient::unpack<wire::SegmentsAnswer>(newer.call(MessageType::segments_get, wanted))->segments,
            wanted.segments);
  const Message answer = old.call(MessageType::segments_get, wanted);
  EXPECT_EQ(RawClient::failure(answer), ErrorCode::group_broken);
  EXPECT_TRUE(answer.descriptors.empty());
}

TEST_F(WriterGroupTest, what_never_fits_is_refused_before_anything_is_dropped_for_it) {
  RawClient client = connect();
  wire::WriterOpenT asked = writer_open();
  asked.when_full = static_cast<std::uint8_t>(WhenFull::drop_oldest);
  ASSERT_EQ(client.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  for (std::uint64_t step = 0; step < 9; ++step) write_step(client, step, 6 * mib);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, space(9, 1024 * mib))), ErrorCode::no_space);
  wire::StreamsQueryT query;
  query.reservation = "res";
  query.stream = "flow";
  const auto answer = RawClient::unpack<wire::StreamsAnswer>(connect().call(MessageType::streams_query, query));
  EXPECT_EQ(answer->streams.front()->steps, 9U);
}

TEST_F(WriterGroupTest, what_never_fits_is_told_whole_and_not_by_what_is_missing_of_it) {
  RawClient client = writer();
  wire::SpaceRequestT asked = space(0, 3 * mib);
  asked.whole_bytes = 1024 * mib;
  const Message answer = client.call(MessageType::space_request, asked);
  ASSERT_EQ(RawClient::failure(answer), ErrorCode::no_space);
  EXPECT_EQ(protocol::failure_of(answer).what.find("1 GiB are requested"), 0U) << protocol::failure_of(answer).what;
}

TEST_F(WriterGroupTest, parts_that_name_space_of_others_change_nothing) {
  RawClient client = writer();
  RawClient other = writer("probe");
  const wire::PartT good = part_of(client, 0);
  const wire::PartT foreign = part_of(other, 0);
  const auto refused = [&](wire::PartT part, const char* why) {
    EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part)), ErrorCode::protocol) << why;
  };
  wire::PartT part = good;
  part.extents = foreign.extents;
  part.metadata = foreign.metadata;
  refused(part, "another stream's space");
  part = good;
  part.extents.push_back(part.extents[0]);
  refused(part, "an extent twice");
  const wire::Extent& extent = good.extents[0];
  const auto with_extent = [&](std::uint32_t segment, std::uint64_t offset, std::uint64_t length) {
    wire::PartT changed = good;
    changed.extents = {wire::Extent(segment, 0, 0, offset, length)};
    return changed;
  };
  refused(with_extent(999, extent.offset(), extent.length()), "no such segment");
  refused(with_extent(extent.segment(), extent.offset(), ~std::uint64_t{4095}), "a length that overflows");
  refused(with_extent(extent.segment(), extent.offset() + 1, 4096), "not in units");
  refused(with_extent(extent.segment(), extent.offset(), 0), "empty");
  refused(with_extent(extent.segment(), extent.offset(), 1 << 30), "more than the segment has");
  part = good;
  part.extents = {wire::Extent(extent.segment(), 1, 0, extent.offset(), extent.length())};
  refused(part, "a member that does not have the segment");
  part = good;
  part.metadata = {wire::Extent(extent.segment(), 1, 0, extent.offset(), 64)};
  refused(part, "metadata on a member that does not have the segment");
  part = good;
  part.metadata.clear();
  refused(part, "no metadata");
  part = good;
  part.metadata_bytes = 0;
  refused(part, "metadata of no length");
  part = good;
  part.metadata_bytes = ~std::uint64_t{0};
  refused(part, "metadata longer than its place");
  part = good;
  part.metadata = {wire::Extent(extent.segment(), 0, 0, extent.offset() + extent.length(), 64)};
  refused(part, "metadata outside");
  part = good;
  part.metadata = {wire::Extent(extent.segment(), 0, 0, ~std::uint64_t{0} - 8, 64)};
  refused(part, "metadata that overflows");
  part = good;
  part.metadata.emplace_back(extent.segment(), 0, 0, extent.offset(), 0);
  refused(part, "an empty piece of metadata");
  EXPECT_EQ(client.call(MessageType::part, good).type, MessageType::committed);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, an_aborted_step_keeps_its_number_and_its_space) {
  RawClient client = writer();
  const wire::PartT part = part_of(client, 0);
  EXPECT_EQ(client.call(MessageType::step_abort, abort(0)).type, MessageType::done);
  EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, a_rank_that_names_members_that_there_are_not_is_refused) {
  RawClient client = writer();
  wire::StepAbortT lost = abort(0);
  lost.members_lost = {0, 1};
  EXPECT_EQ(RawClient::failure(client.call(MessageType::step_abort, lost)), ErrorCode::protocol);
  EXPECT_EQ(client.call(MessageType::step_abort, abort(0)).type, MessageType::done);
  write_step(client, 0);
}

// crash-matrix: committing a step | a rank of an older incarnation, with its part of the same number, before the new group's and after it | it is refused; the new group's step stays
TEST_F(WriterGroupTest, the_loss_of_a_rank_fails_what_the_others_wait_for) {
  RawClient left = connect();
  auto lost = std::make_unique<RawClient>(connect());
  const auto pending = left.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(lost->call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(left.answer(pending).type, MessageType::writer_opened);
  const wire::PartT part = part_of(left, 0);
  const auto sent = left.send(MessageType::part, part);
  part_of(*lost, 0);
  lost.reset();
  EXPECT_EQ(RawClient::failure(left.answer(sent)), ErrorCode::group_broken);
  EXPECT_EQ(RawClient::failure(left.call(MessageType::space_request, space(0, 4096))), ErrorCode::group_broken);
  EXPECT_EQ(RawClient::failure(left.call(MessageType::writer_close, wire::WriterCloseT())), ErrorCode::group_broken);
  RawClient again = writer();
  EXPECT_EQ(RawClient::failure(left.call(MessageType::space_request, space(0, 4096))), ErrorCode::fenced);
  EXPECT_EQ(RawClient::failure(left.call(MessageType::part, part)), ErrorCode::fenced);
  write_step(again, 0);
  EXPECT_EQ(RawClient::failure(left.call(MessageType::part, part)), ErrorCode::fenced);
  EXPECT_EQ(stream()->steps, 1U);
  EXPECT_TRUE(problems().empty());
}

// crash-matrix: a step of two writer ranks | one rank dies after its part has come, and the server sees it before the other sends its own | no step; the other's part gets group_broken; all space of both is free again; a new group writes the same number
TEST_F(WriterGroupTest, a_rank_that_is_lost_behind_its_part_takes_the_step_along) {
  const auto used_bytes = [&] {
    wire::ReservationsQueryT query;
    query.name = "res";
    const auto info =
        RawClient::unpack<wire::ReservationsAnswer>(connect().call(MessageType::reservations_query, query));
    return info->reservations.front()->used_bytes;
  };
  RawClient left = connect();
  auto lost = std::make_unique<RawClient>(connect());
  const auto pending = left.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(lost->call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(left.answer(pending).type, MessageType::writer_opened);
  const std::uint64_t used_before = used_bytes();
  const wire::PartT part = part_of(left, 0, mib);
  const auto sent = lost->send(MessageType::part, part_of(*lost, 0, mib));
  ASSERT_FALSE(lost->is_answered(sent)) << "it has come, and waits for the other rank";
  EXPECT_GE(used_bytes(), used_before + 2 * mib);
  lost.reset();
  expect_alive();  // it has seen that
  EXPECT_EQ(RawClient::failure(left.call(MessageType::part, part)), ErrorCode::group_broken);
  EXPECT_EQ(stream()->steps, 0U);
  // But for what the journal says of it.
  EXPECT_LT(used_bytes(), used_before + mib / 4);
  RawClient again = writer();
  write_step(again, 0);
  EXPECT_EQ(stream()->steps, 1U);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, a_waiter_for_durability_of_a_lost_group_is_answered_to_itself) {
  RawClient left = connect();
  auto lost = std::make_unique<RawClient>(connect());
  wire::WriterOpenT asked = writer_open(0, 2);
  asked.durability = 2;
  const auto pending = left.send(MessageType::writer_open, asked);
  asked.rank = 1;
  ASSERT_EQ(lost->call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  ASSERT_EQ(left.answer(pending).type, MessageType::writer_opened);
  const auto sent = left.send(MessageType::part, part_of(left, 0));
  (void)lost->send(MessageType::part, part_of(*lost, 0));
  lost.reset();
  // The step has committed before the rank was lost, or not: both are told, nothing hangs, nothing goes to the new
  // group.
  const Message answer = left.answer(sent);
  EXPECT_TRUE(answer.type == MessageType::committed || RawClient::failure(answer) == ErrorCode::group_broken)
      << wire::EnumNameMessageType(answer.type);
  RawClient again = writer();
  EXPECT_FALSE(again.is_answered(sent));
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, a_step_cannot_be_whole_once_a_rank_has_closed) {
  RawClient first = connect();
  RawClient second = connect();
  const auto pending = first.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(second.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(first.answer(pending).type, MessageType::writer_opened);
  const auto sent = first.send(MessageType::part, part_of(first, 0));
  EXPECT_EQ(second.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  EXPECT_EQ(second.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done) << "asked again";
  EXPECT_EQ(RawClient::failure(first.answer(sent)), ErrorCode::invalid_argument);
  EXPECT_EQ(first.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, space_is_given_in_the_order_in_which_steps_began) {
  // The first stream fills 50 of 62 MiB, 10 of them only because a reader holds the oldest step. A large step waits for
  // these; a small one would fit at once, but began later.
  RawClient full = connect();
  wire::WriterOpenT asked = writer_open();
  asked.retention = "last:4";
  ASSERT_EQ(full.call(MessageType::writer_open, asked).type, MessageType::writer_opened);
  write_step(full, 0, 10 * mib);
  RawClient holder = reader(reader_open());
  const auto held = wait_step(holder);
  ASSERT_TRUE(held->step->pinned);
  for (std::uint64_t step = 1; step < 5; ++step) write_step(full, step, 10 * mib);
  ASSERT_EQ(full.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  RawClient early = writer("early");
  RawClient late = writer("late");
  const auto first = early.send(MessageType::space_request, space(0, 16 * mib));
  ASSERT_FALSE(early.is_answered(first)) << protocol::failure_of(early.answer(first)).message();
  const auto second = late.send(MessageType::space_request, space(0, 4 * mib));
  EXPECT_FALSE(late.is_answered(second)) << "it overtook a step that began earlier";
  // One behind them whose stream is removed waits no longer, and is not served.
  RawClient gone = writer("gone");
  const auto third = gone.send(MessageType::space_request, space(0, 4 * mib));
  EXPECT_FALSE(gone.is_answered(third));
  wire::StreamRemoveT removal;
  removal.reservation = "res";
  removal.stream = "gone";
  removal.force = true;
  EXPECT_EQ(connect().call(MessageType::stream_remove, removal).type, MessageType::done);
  ASSERT_TRUE(gone.is_answered(third));
  EXPECT_EQ(RawClient::failure(gone.answer(third)), ErrorCode::not_found);
  EXPECT_FALSE(late.is_answered(second));
  wire::StepReleaseT release;
  release.steps.emplace_back(held->step->summary->step(), held->step->summary->epoch(), 0);
  (void)holder.send(MessageType::step_release, release);
  const Message granted = early.answer(first);
  EXPECT_EQ(granted.type, MessageType::space_granted) << protocol::failure_of(granted).message();
  EXPECT_EQ(late.answer(second).type, MessageType::space_granted);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, writers_share_what_ended_streams_left_of_their_segments) {
  // More ended streams than there are segments: each segment belongs to one of them, and is free but for a step.
  for (int i = 0; i < 70; ++i) {
    RawClient ended = writer("ended" + std::to_string(i));
    write_step(ended, 0, 4096);
    ASSERT_EQ(ended.call(MessageType::writer_close, wire::WriterCloseT()).type, MessageType::done);
  }
  RawClient first = writer("first");
  ASSERT_EQ(first.call(MessageType::space_request, space(0, 4096)).type, MessageType::space_granted);
  RawClient second = writer("second");
  const auto pending = second.send(MessageType::space_request, space(0, 4096));
  EXPECT_TRUE(second.is_answered(pending)) << "the first writer took every segment";
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, removing_a_stream_ends_every_wait_and_gives_all_space_back) {
  RawClient first = connect();
  RawClient second = connect();
  RawClient refused = connect();
  const auto pending = first.send(MessageType::writer_open, writer_open(0, 2));
  ASSERT_EQ(second.call(MessageType::writer_open, writer_open(1, 2)).type, MessageType::writer_opened);
  ASSERT_EQ(first.answer(pending).type, MessageType::writer_opened);
  EXPECT_EQ(RawClient::failure(refused.call(MessageType::writer_open, writer_open(0, 1))), ErrorCode::busy);
  const auto sent = first.send(MessageType::part, part_of(first, 0));
  part_of(second, 0, 100'000);
  EXPECT_FALSE(first.is_answered(sent));
  wire::StreamRemoveT removal;
  removal.reservation = "res";
  removal.stream = "flow";
  EXPECT_EQ(RawClient::failure(connect().call(MessageType::stream_remove, removal)), ErrorCode::refused);
  removal.force = true;
  EXPECT_EQ(connect().call(MessageType::stream_remove, removal).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(first.answer(sent)), ErrorCode::not_found);
  EXPECT_EQ(RawClient::failure(second.call(MessageType::writer_close, wire::WriterCloseT())), ErrorCode::not_found);
  EXPECT_TRUE(problems().empty());
}

TEST_F(WriterGroupTest, destroying_a_reservation_ends_every_wait) {
  RawClient open = connect();
  const auto opening = open.send(MessageType::writer_open, writer_open(0, 2, "forming"));
  RawClient client = writer();
  RawClient follower = reader(reader_open());
  const auto waiting = follower.send(MessageType::step_wait, wire::StepWaitT());
  EXPECT_FALSE(open.is_answered(opening));
  wire::ReservationDestroyT destruction;
  destruction.name = "res";
  destruction.force = true;
  EXPECT_EQ(connect().call(MessageType::reservation_destroy, destruction).type, MessageType::done);
  EXPECT_EQ(RawClient::failure(open.answer(opening)), ErrorCode::not_found);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::space_request, space(0, 4096))), ErrorCode::not_found);
  const auto event = RawClient::unpack<wire::StepEvent>(follower.answer(waiting));
  EXPECT_EQ(event->kind, static_cast<std::uint8_t>(NextStep::Kind::end_of_stream));
  expect_alive();
}

}  // namespace
}  // namespace forebay::testing
