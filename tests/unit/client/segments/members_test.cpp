// SPDX-License-Identifier: Apache-2.0
// An extent that names a member of the reservation which does not have its segment never becomes bytes: not in a
// reader's copies, views and checks, not in mappings, not in the server's check of steps.
#include <cstring>

#include <forebay/admin.h>

#include "base/checksum.h"
#include "base/log.h"
#include "client/connection/reconnect.h"
#include "client/segments/client_device.h"
#include "client/segments/mapping.h"
#include "client/segments/segment_cache.h"
#include "protocol/step_metadata_builder.h"
#include "storage/journal.h"
#include "storage/stream_state.h"
#include "tests/unit/client/server_on_disk.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

using client::Connection;
using protocol::MessageType;

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t elements = page / sizeof(double);

class Members : public StreamTest {
 protected:
  /// Commits step 0 of res/flow, whose blocks of zeros say that they lie on `member`: with 1, as no client of ours
  /// would.
  void commit_step(std::uint16_t member) {
    auto opened = client::connect_server(*ServerPlace::find(), {});
    ASSERT_OK(opened);
    connection_ = std::move(*opened);
    wire::WriterOpenT open;
    open.reservation = "res";
    open.stream = "flow";
    open.mode = 2;
    open.ranks = 1;
    open.when_full = 1;
    open.durability = 1;
    open.open_timeout_ms = 30'000;
    ASSERT_OK(connection_->call(MessageType::writer_open, open, MessageType::writer_opened));
    wire::SpaceRequestT request;
    request.bytes = 3 * page;
    auto granted = connection_->call(MessageType::space_request, request, MessageType::space_granted);
    ASSERT_OK(granted);
    auto body = protocol::body_of<wire::SpaceGranted>(*granted);
    ASSERT_OK(body);
    ASSERT_EQ((*body)->extents()->size(), 1U);
    const wire::Extent extent = *(*body)->extents()->Get(0);
    auto file = client::client_device().adopt(std::move(granted->descriptors.front()));

    const std::vector<std::byte> zeros(2 * page);
    protocol::StepMetadataBuilder builder;
    builder.begin(0, true, false);
    const Dimensions shape{elements};
    const Dimensions start{0};
    const auto add = [&](std::string_view name, std::uint64_t offset) {
      const format::Piece piece(extent.segment(), member, 0, extent.offset() + offset, page);
      builder.add_block({name, DataType::float64, ShapeKind::global_array, 1, shape},
                        {start, shape, std::span(&piece, 1), crc32c(std::span(zeros).first(page)), {}});
    };
    add("T", 0);
    add("U", page);
    const auto metadata = builder.encode({});
    ASSERT_OK(file->write_at(extent.offset(), zeros));
    ASSERT_OK(file->write_at(extent.offset() + 2 * page, metadata));
    wire::PartT part;
    part.extents.push_back(extent);
    part.metadata.emplace_back(extent.segment(), 0, 0, extent.offset() + 2 * page, metadata.size());
    part.metadata_bytes = metadata.size();
    part.metadata_crc = crc32c(metadata);
    ASSERT_OK(connection_->call(MessageType::part, part, MessageType::committed));
  }

  std::shared_ptr<Connection> connection_;
};

template <class Value>
void expect_member_refused(const Result<Value>& result) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::corrupt);
  EXPECT_NE(result.error().what.find("member 1"), std::string::npos) << result.error().message();
}

TEST_F(Members, right_members_are_read) {
  commit_step(0);
  auto reader = open_reader();
  const auto step = *reader->step(0);
  EXPECT_EQ(read_step(*step), std::vector<double>(elements));
  ASSERT_OK(step->view(*step->find("T"), {{0}, {elements}}));
  ASSERT_OK(step->verify());
  const auto findings = (*Admin::connect())->audit(true);
  ASSERT_OK(findings);
  EXPECT_TRUE(findings->empty());
}

TEST_F(Members, another_member_than_the_segments_is_refused_by_every_reader_and_by_the_server) {
  commit_step(1);
  auto reader = open_reader();
  const auto step = *reader->step(0);
  const VariableInfo& variable = *step->find("T");
  std::vector<double> values(elements);
  expect_member_refused(step->read(variable, {{0}, {elements}}, values.data()));
  // Short ranges go a way of their own, and what was read ahead for one may serve the next.
  for (std::uint64_t at = 0; at < 4; ++at) expect_member_refused(step->read(variable, {{at}, {1}}, values.data()));
  expect_member_refused(step->read_block(variable, 0, {{0}, {elements}}, values.data()));
  expect_member_refused(step->view(variable, {{0}, {elements}}));
  expect_member_refused(step->view_block(variable, 0, {{0}, {elements}}));
  expect_member_refused(step->verify());
  ReaderOptions checked;
  checked.verify = Verify::first;
  auto other = open_reader(checked);
  const auto again = *other->step(0);
  expect_member_refused(again->view(*again->find("T"), {{0}, {elements}}));

  const auto findings = (*Admin::connect())->audit(true);
  ASSERT_OK(findings);
  ASSERT_EQ(findings->size(), 1U);
  EXPECT_NE(findings->front().what.find("member 1"), std::string::npos) << findings->front().what;
}

TEST_F(Members, a_mapping_is_of_the_member_that_has_the_segment) {
  auto writer = open_writer();
  write_step(*writer, elements, 1.0);
  client::SegmentCache segments(client::client_device());
  segments.set_layout(SegmentLayout({2, 3}), 4 * page);
  auto file = client::client_device().open(server_.root() + "/file", OpenMode::create_new);
  ASSERT_OK(file);
  ASSERT_OK((*file)->write_at(0, std::vector<std::byte>(4 * page)));
  const auto add = [&](std::uint32_t number) {
    flatbuffers::FlatBufferBuilder builder;
    wire::SegmentsAnswerT answer;
    answer.segments = {number};
    builder.Finish(wire::SegmentsAnswer::Pack(builder, &answer));
    std::vector<Descriptor> descriptors;
    descriptors.emplace_back(::dup((*file)->descriptor()));
    return segments.add(flatbuffers::GetRoot<wire::SegmentsAnswer>(builder.GetBufferPointer())->segments(),
                        std::move(descriptors));
  };
  ASSERT_OK(add(1));
  ASSERT_OK(add(3));
  EXPECT_EQ(add(5).error().code, ErrorCode::protocol);  // the members have five
  const auto map = [&](std::uint32_t segment, std::uint16_t member, bool writable) {
    return client::Mapping::map(segments, std::vector{format::Piece(segment, member, 0, page, page)}, writable);
  };
  for (const bool writable : {false, true}) {
    ASSERT_OK(map(1, 0, writable));
    ASSERT_OK(map(3, 1, writable));
    EXPECT_EQ(map(1, 1, writable).error().code, ErrorCode::corrupt);
    EXPECT_EQ(map(3, 0, writable).error().code, ErrorCode::corrupt);
  }
  EXPECT_TRUE(segments.find(3)->check(1, 0, 4 * page));
  EXPECT_EQ(segments.find(3)->check(0, 0, page).error().code, ErrorCode::corrupt);
  EXPECT_EQ(segments.find(3)->check(1, page, 4 * page).error().code, ErrorCode::corrupt);
  EXPECT_EQ(segments.find(3)->check(1, ~std::uint64_t{0}, 2).error().code, ErrorCode::corrupt);
}

TEST(MembersOnDisk, a_journal_that_names_another_member_is_not_recovered) {
  log::set_level(log::Level::off);
  ServerOnDisk server;
  ASSERT_OK(server.start());
  ASSERT_OK(server.create("res", std::uint64_t{8} << 20));
  const std::string id = (*Admin::connect())->reservation("res")->id;
  {
    auto writer = Writer::open(*parse_address("res/flow"), {});
    ASSERT_OK(writer);
    ASSERT_OK((*writer)->begin_step());
    ASSERT_OK((*writer)->put_string("text", ShapeKind::global_value, "value"));
    ASSERT_OK((*writer)->end_step());
    // Before the writer, so that its group stays at work.
    ASSERT_OK(server.flush_and_stop());
  }
  {
    storage::StreamState state;
    storage::JournalRecovery recovery;
    auto journal = storage::Journal::open(
        server.disk(), server.root() + "/reservations/" + id + "/streams/flow",
        [&](storage::RecordType type, std::span<const std::byte> body) { return state.apply(type, body); }, recovery);
    ASSERT_OK(journal);
    journal::StepCommittedT step = state.steps.at(0).committed;
    step.step = 1;
    for (journal::Extent& extent : step.parts.front()->extents)
      extent = journal::Extent(extent.segment(), 1, 0, extent.offset(), extent.length());
    const auto body = protocol::pack(step);
    ASSERT_OK((*journal)->append(storage::RecordType::step_committed, {body.data(), body.size()}));
  }
  ASSERT_OK(server.start());
  const auto steps = (*Admin::connect())->steps(*parse_address("res/flow"));
  ASSERT_FALSE(steps);
  EXPECT_EQ(steps.error().code, ErrorCode::corrupt);
  EXPECT_NE(steps.error().what.find("member 1"), std::string::npos) << steps.error().message();
  log::set_level(log::Level::error);
}

}  // namespace
}  // namespace forebay::testing
