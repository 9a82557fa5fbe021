// SPDX-License-Identifier: Apache-2.0
// Writers do with their descriptors of segments what no writer may: it costs them their group, and nobody else
// anything.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/clock.h"
#include "tests/unit/server/server_fixture.h"

namespace forebay::testing {
namespace {

using protocol::Message;
using protocol::MessageType;

class SegmentMisuse : public ServerTest {
 protected:
  SegmentMisuse() {
    options_.segment_look_ms = 20;
    options_.restart_grace_ms = 100;
  }

  /// Asks for space and keeps the descriptor that comes with it.
  wire::PartT granted_part(RawClient& client, std::uint64_t step, Descriptor& segment) {
    wire::SpaceRequestT request;
    request.step = step;
    request.bytes = 8192;
    Message answer = client.call(MessageType::space_request, request);
    EXPECT_EQ(answer.type, MessageType::space_granted);
    wire::PartT part;
    part.step = step;
    part.extents = RawClient::unpack<wire::SpaceGranted>(answer)->extents;
    part.metadata.emplace_back(part.extents[0].segment(), 0, 0, part.extents[0].offset(), 64);
    part.metadata_bytes = 64;
    if (!answer.descriptors.empty()) segment = std::move(answer.descriptors.front());
    return part;
  }
  static struct stat status_of(int file) {
    struct stat status{};
    EXPECT_EQ(::fstat(file, &status), 0);
    return status;
  }
  /// Waits until the server has made the file so.
  template <class Condition>
  static bool becomes(int file, const Condition& condition) {
    const Deadline deadline = Deadline::after_ms(20'000);
    while (!condition(status_of(file))) {
      if (deadline.passed()) return false;
    }
    return true;
  }
  static void grow(int file) { EXPECT_EQ(::pwrite(file, "x", 1, status_of(file).st_size + 300'000), 1); }
};

// crash-matrix: writing beyond a segment's end | a rank, before its part is sent | no step is committed, the group ends with the reason; what lies beyond the end is cut off
TEST_F(SegmentMisuse, nothing_commits_from_a_segment_that_was_written_beyond_its_end) {
  RawClient client = writer();
  Descriptor segment;
  const auto part = granted_part(client, 0, segment);
  const off_t granted = status_of(segment.get()).st_size;
  grow(segment.get());
  const Message refused = client.call(MessageType::part, part);
  ASSERT_EQ(RawClient::failure(refused), ErrorCode::group_broken);
  EXPECT_NE(protocol::failure_of(refused).what.find("beyond the"), std::string::npos);
  EXPECT_TRUE(becomes(segment.get(), [&](const struct stat& now) { return now.st_size == granted; }));
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::interrupted));
}

// crash-matrix: writing beyond a segment's end | a rank that allocates beyond the end, between steps and after its group has ended | the disk gets the space back each time
TEST_F(SegmentMisuse, blocks_beyond_the_end_are_cut_while_the_group_is_idle) {
  RawClient client = writer();
  Descriptor segment;
  granted_part(client, 0, segment);
  const struct stat before = status_of(segment.get());
  ASSERT_EQ(::fallocate(segment.get(), FALLOC_FL_KEEP_SIZE, before.st_size, 8 * mib), 0);
  EXPECT_EQ(status_of(segment.get()).st_size, before.st_size);
  EXPECT_TRUE(becomes(segment.get(), [&](const struct stat& now) { return now.st_blocks <= before.st_blocks + 128; }));
  EXPECT_EQ(stream()->status, static_cast<std::uint8_t>(StreamStatus::interrupted));
  // The process still has the segment, and its group is over.
  grow(segment.get());
  EXPECT_TRUE(becomes(segment.get(), [&](const struct stat& now) { return now.st_size == before.st_size; }));
}

// crash-matrix: writing: a segment is truncated | a rank, before its part is sent | the group ends; other groups write in other segments; the segment comes back whole once nobody has it open
TEST_F(SegmentMisuse, a_truncated_segment_goes_to_nobody_until_it_is_empty_and_let_go) {
  RawClient client = writer();
  Descriptor segment;
  const auto part = granted_part(client, 0, segment);
  const off_t granted = status_of(segment.get()).st_size;
  ASSERT_EQ(::ftruncate(segment.get(), 4096), 0);
  EXPECT_EQ(RawClient::failure(client.call(MessageType::part, part)), ErrorCode::group_broken);
  ASSERT_EQ(problems().size(), 1U);
  EXPECT_NE(problems().front().find("lacks the last"), std::string::npos) << problems().front();
  // Another group writes elsewhere, and the segment comes back once its process has let it go.
  RawClient next = writer();
  Descriptor other;
  const auto elsewhere = granted_part(next, 0, other);
  EXPECT_NE(elsewhere.extents[0].segment(), part.extents[0].segment());
  EXPECT_EQ(next.call(MessageType::part, elsewhere).type, MessageType::committed);
  segment.reset();
  const Descriptor looked(::open(segment_path(part.extents[0].segment()).c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(becomes(
      looked.get(), [&](const struct stat& now) { return now.st_size == granted && now.st_blocks * 512 >= granted; }));
  EXPECT_TRUE(problems().empty());
}

TEST_F(SegmentMisuse, a_hole_in_a_segment_ends_the_group) {
  RawClient client = writer();
  Descriptor segment;
  granted_part(client, 0, segment);
  ASSERT_EQ(::fallocate(segment.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, mib), 0);
  const Deadline deadline = Deadline::after_ms(20'000);
  while (stream()->status != static_cast<std::uint8_t>(StreamStatus::interrupted)) ASSERT_FALSE(deadline.passed());
  EXPECT_NE(stream()->status_text.find("has holes"), std::string::npos) << stream()->status_text;
}

// crash-matrix: writing: segments are truncated and lengthened | anybody, while no server runs | the reservation and all steps that lie elsewhere; an audit names those that are damaged
TEST_F(SegmentMisuse, a_restart_keeps_the_reservation_and_every_step_that_lies_elsewhere) {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
  {
    RawClient client = writer();
    Descriptor segment;
    const auto part = granted_part(client, 0, segment);
    first = part.extents[0].segment();
    EXPECT_EQ(client.call(MessageType::part, part).type, MessageType::committed);
    client.call(MessageType::writer_close, wire::WriterCloseT());
    segment.reset();
    RawClient other = writer("other");
    Descriptor others;
    const auto otherwise = granted_part(other, 0, others);
    second = otherwise.extents[0].segment();
    EXPECT_EQ(other.call(MessageType::part, otherwise).type, MessageType::committed);
    other.call(MessageType::writer_close, wire::WriterCloseT());
  }
  ASSERT_NE(first, second);
  const std::string shortened = segment_path(first);
  const std::string lengthened = segment_path(second);
  const auto granted = std::filesystem::file_size(lengthened);
  restart([&] {
    std::filesystem::resize_file(shortened, 0);
    std::filesystem::resize_file(lengthened, granted + 5 * mib);
  });
  EXPECT_EQ(stream()->steps, 1U);
  const Descriptor longer(::open(lengthened.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(becomes(longer.get(),
                      [&](const struct stat& now) { return static_cast<std::uint64_t>(now.st_size) == granted; }));
  ASSERT_EQ(problems().size(), 1U);
  EXPECT_NE(problems().front().find("flow: 0"), std::string::npos) << problems().front();
  // Without the step that lies there, the segment is as good as new.
  wire::StreamRemoveT remove;
  remove.reservation = "res";
  remove.stream = "flow";
  EXPECT_EQ(connect().call(MessageType::stream_remove, remove).type, MessageType::done);
  const Descriptor looked(::open(shortened.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_TRUE(becomes(looked.get(), [&](const struct stat& now) {
    return static_cast<std::uint64_t>(now.st_size) == granted &&
           static_cast<std::uint64_t>(now.st_blocks) * 512 >= granted;
  }));
  EXPECT_TRUE(problems().empty());
}

TEST_F(SegmentMisuse, a_segment_that_is_gone_is_made_again_when_nothing_lies_in_it) {
  const std::string missing = segment_path(5);
  const auto granted = std::filesystem::file_size(missing);
  restart([&] { std::filesystem::remove(missing); });
  RawClient client = writer();
  write_step(client, 0);
  const Deadline deadline = Deadline::after_ms(20'000);
  while (!std::filesystem::exists(missing) || std::filesystem::file_size(missing) != granted)
    ASSERT_FALSE(deadline.passed());
  EXPECT_TRUE(problems().empty());
}

}  // namespace
}  // namespace forebay::testing
