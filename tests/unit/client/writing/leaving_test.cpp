// SPDX-License-Identifier: Apache-2.0
// How a writer that ends without close() says goodbye.
#include <cstdlib>

#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

class Leaving : public StreamTest {
 protected:
  /// Why the stream is interrupted, without who was lost.
  std::string reason() {
    auto reader = open_reader();
    while (true) {
      auto next = reader->next(10'000);
      EXPECT_TRUE(next) << next.error().message();
      if (!next || next->kind == NextStep::Kind::not_ready || next->kind == NextStep::Kind::end_of_stream) break;
    }
    const auto info = reader->info();
    EXPECT_TRUE(info);
    const std::string prefix = ") was lost: ";
    const auto at = info->status_text.find(prefix);
    return at == std::string::npos ? info->status_text : info->status_text.substr(at + prefix.size());
  }
  static WriterOptions without_grace() {
    WriterOptions options;
    options.grace_ms = 0;
    return options;
  }
};

TEST_F(Leaving, writer_that_is_let_go_of_has_left) {
  auto writer = open_writer(without_grace());
  write_step(*writer, 10, 1);
  writer.reset();
  EXPECT_EQ(reason(), "it left without closing the stream");
}

TEST_F(Leaving, writer_that_an_exception_takes_along_says_so) {
  try {
    auto writer = open_writer(without_grace());
    write_step(*writer, 10, 1);
    ASSERT_TRUE(writer->begin_step().has_value());
    throw std::runtime_error("not seen from here");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(reason(), "an exception ended it");
}

TEST_F(Leaving, first_failure_that_is_noted_counts_until_the_next_step) {
  auto writer = open_writer(without_grace());
  ASSERT_TRUE(writer->begin_step().has_value());
  writer->note_failure("forgotten");
  ASSERT_TRUE(writer->abort_step().has_value());
  write_step(*writer, 10, 1);
  ASSERT_TRUE(writer->begin_step().has_value());
  writer->note_failure("disk on fire");
  ASSERT_TRUE(writer->abort_step().has_value());
  writer->note_failure("what followed from it");
  writer.reset();
  EXPECT_EQ(reason(), "an exception ended it in step 1: disk on fire");
}

TEST_F(Leaving, writer_that_has_closed_says_nothing_more) {
  auto writer = open_writer();
  write_step(*writer, 10, 1);
  writer->note_failure("too late to matter");
  ASSERT_TRUE(writer->close().has_value());
  writer.reset();
  EXPECT_EQ(open_reader()->info()->status, StreamStatus::ended);
}

// What is done in the child, which then exits in order. Its parent asks the server.
void in_child(const std::function<void()>& work) {
  EXPECT_EXIT(
      {
        work();
        std::exit(0);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(Leaving, process_that_exits_with_an_open_writer_has_left) {
  in_child([this] { (void)open_writer(without_grace()).release(); });
  EXPECT_EQ(reason(), "it left without closing the stream");
}

TEST_F(Leaving, destructor_of_a_static_object_may_still_close) {
  in_child([this] {
    static struct Closer {
      std::unique_ptr<Writer> writer;
      ~Closer() {
        if (!writer->close()) std::_Exit(1);
      }
    } closer;
    closer.writer = open_writer();
  });
  EXPECT_EQ(open_reader()->info()->status, StreamStatus::ended);
}

TEST_F(Leaving, next_group_learns_why_the_last_one_was_interrupted) {
  open_writer(without_grace()).reset();
  WriterOptions options;
  options.mode = WriteMode::append;
  auto again = open_writer(options);
  EXPECT_NE(again->interruption().find("left without closing"), std::string::npos);
  ASSERT_TRUE(again->close().has_value());
  EXPECT_EQ(open_writer(options)->interruption(), "");
}

}  // namespace
}  // namespace forebay::testing
