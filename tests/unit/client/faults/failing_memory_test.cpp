// SPDX-License-Identifier: Apache-2.0
// A client that gets no memory, whichever allocation of a call it is: the call says so, the program lives, and the
// stream is whole.
#include "tests/unit/client/faults/failing_memory_fixture.h"

namespace forebay::testing {
namespace {

// crash-matrix: no memory | writer, any allocation of begin_step, put, end_step or abort_step, once, and from then on | every step told committed that retention keeps, with its content; the step is there whole or not at all; the group is interrupted, and a new writer continues after it
TEST_F(FailingMemoryTest, in_a_writer_leaves_the_stream_whole) {
  write_whole_step(*writer());
  int given_up = 0;
  sweep_failures(30, [&](std::uint64_t n, bool lasting) {
    // A new one, whose tables all grow.
    auto writing = writer();
    in_doubt_ = {writing->current_step(), ++content_};
    bool ended = false;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, content_); !put) return put;
      if (auto end = writing->end_step(); !end) return end;
      ended = true;
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, 0); !put) return put;
      return writing->abort_step();
    });
    if (ended) {
      committed_.insert(*in_doubt_);
      in_doubt_.reset();
    }
    // Where it was the program's own memory the writer goes on.
    if (writing->in_step()) {
      EXPECT_TRUE(writing->abort_step());
    }
    if (const auto begun = writing->begin_step()) {
      writing.reset();
    } else {
      ++given_up;
      EXPECT_EQ(begun.error().code, ErrorCode::group_broken) << begun.error().message();
      EXPECT_NE(begun.error().what.find("out of memory"), std::string::npos) << begun.error().message();
    }
    check_stream();
    // For the server it is as if the rank had died: the next one comes in.
    const auto next = writer();
    write_whole_step(*next);
    // The step in doubt came before it or never.
    if (in_doubt_ && committed_.rbegin()->first > in_doubt_->first) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    check_stream();
    return failed;
  });
  EXPECT_GT(given_up, 0);
}

// crash-matrix: no memory | reader that looks at a step in place, any allocation of taking the next one, once, and from then on; it lets go of the view last | the view, as it was, while space goes round; then nothing stays held
TEST_F(FailingMemoryTest, in_a_reader_leaves_its_views_as_they_are) {
  sweep_failures(7, [&](std::uint64_t n, bool lasting) {
    write_whole_step(*writer());
    auto reading = reader_at_random();
    const auto steps = reading->steps();
    if (!steps) {
      ADD_FAILURE() << steps.error().message();
      return false;
    }
    const std::uint64_t number = steps->back().step;
    std::optional<Step::View> view;
    std::size_t bytes = 0;
    {
      const auto step = reading->step(number);
      EXPECT_TRUE(step) << step.error().message();
      const VariableInfo* variable = (*step)->find("T");
      auto seen = (*step)->view(*variable, {Dimensions(variable->shape.size(), 0), variable->shape});
      EXPECT_TRUE(seen) << seen.error().message();
      view = std::move(*seen);
      bytes = element_count(variable->shape) * element_size(variable->type);
    }
    const std::vector<std::byte> before(view->data, view->data + bytes);
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      auto step = reading->step(number);
      if (!step) return fail(step.error());
      return {};
    });
    // Without a call more: there is no connection that speaks for the view.
    const auto writing = writer();
    for (int i = 0; i < 8; ++i) write_whole_step(*writing);
    EXPECT_TRUE(std::ranges::equal(before, std::span(view->data, bytes)));
    reading.reset();
    view.reset();
    const auto looking = reader_at_random();
    const auto held = [&] {
      const auto kept = looking->steps();
      return !kept || std::ranges::any_of(*kept, [](const StepSummary& step) { return step.pins > 0; });
    };
    const Deadline deadline = Deadline::after_ms(10'000);
    while (held() && !deadline.passed()) std::this_thread::yield();
    EXPECT_FALSE(held()) << "a step is held by nobody";
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of next, of reading a step or of letting go of it, once, and from then on | every step, with its content; the same reader goes on with this step or the next; another one of the same consumer continues after the step that was acknowledged (where the acknowledgement failed: with it or after it)
TEST_F(FailingMemoryTest, in_a_reader_leaves_the_stream_whole) {
  std::uint64_t acknowledged = 0;  // steps, by the consumer
  sweep_failures(35, [&](std::uint64_t n, bool lasting) {
    write_whole_step(*writer());
    auto reading = reader();
    EXPECT_EQ(reading->position(), acknowledged);
    bool had = false;
    bool tried = false;
    bool told = false;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      auto next = next_step(*reading);
      if (!next) return fail(next.error());
      had = true;
      auto content = content_of(**next);
      if (!content) return fail(content.error());
      tried = true;
      auto done = reading->acknowledge(**next);
      told = done.has_value();
      return done;
    });
    // The same reader goes on, unless the server has not seen yet that it gave its connection up.
    write_whole_step(*writer());
    if (const auto next = next_step(*reading)) {
      EXPECT_GE((*next)->number(), acknowledged + (told ? 1 : 0));
      EXPECT_LE((*next)->number(), acknowledged + (had ? 1 : 0)) << "a step that was not given was passed over";
      check_content(**next);
    } else {
      EXPECT_EQ(next.error().code, ErrorCode::busy) << next.error().message();
    }
    reading.reset();
    check_stream();
    // Another one takes everything, from where the cursor is.
    auto another = reader();
    bool first = true;
    while (acknowledged <= committed_.rbegin()->first && !HasFailure()) {
      const auto next = next_step(*another);
      if (!next) {
        ADD_FAILURE() << next.error().message();
        break;
      }
      if (first && tried && (told || (*next)->number() != acknowledged)) ++acknowledged;
      first = false;
      EXPECT_EQ((*next)->number(), acknowledged);
      check_content(**next);
      const auto done = another->acknowledge(**next);
      EXPECT_TRUE(done) << done.error().message();
      ++acknowledged;
    }
    return failed;
  });
}

}  // namespace
}  // namespace forebay::testing
