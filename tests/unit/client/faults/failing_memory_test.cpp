// SPDX-License-Identifier: Apache-2.0
// A client that gets no memory, whichever allocation of a call it is: the call says so, the program lives, and the
// stream is whole.
#include "tests/unit/client/faults/failing_memory_fixture.h"

namespace forebay::testing {
namespace {

// crash-matrix: no memory | writer, any allocation of begin_step, put or end_step, once, and from then on | every step told committed that retention keeps, with its content; the step is there whole or not at all; a new writer goes on behind it
TEST_F(FailingMemoryTest, in_a_writer_leaves_the_stream_whole) {
  sweep_failures(12, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    write_whole_step(*writing);
    in_doubt_ = {writing->current_step(), ++content_};
    bool ended = false;
    const bool failed = fails_at(n, lasting, [&]() -> Result<void> {
      if (auto begun = writing->begin_step(); !begun) return fail(begun.error());
      if (auto put = put_content(*writing, content_); !put) return put;
      auto end = writing->end_step();
      ended = end.has_value();
      return end;
    });
    // Where the failure has cost an answer the connection is given up, and the group with it; else the writer goes on.
    if (writing->in_step() && !writing->abort_step()) ended = writing->end_step().has_value();
    if (ended) committed_.insert(*in_doubt_);
    if (const auto begun = writing->begin_step(); begun) {
      // What the writer goes on with tells whether the step counts for it.
      EXPECT_EQ(*begun, in_doubt_->first + (ended ? 1 : 0));
      EXPECT_TRUE(put_content(*writing, ++content_));
      EXPECT_TRUE(writing->end_step());
      committed_[*begun] = content_;
      in_doubt_.reset();
    } else {
      EXPECT_EQ(begun.error().code, ErrorCode::group_broken) << begun.error().message();
    }
    writing.reset();
    check_stream();
    write_whole_step(*writer());
    // The step in doubt came before it or never.
    const std::uint64_t newest = committed_.rbegin()->first;
    if (in_doubt_ && newest > in_doubt_->first) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    check_stream();
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of put, once, and from then on; the program puts again and ends the step | the step is there whole or not at all
TEST_F(FailingMemoryTest, in_a_put_never_makes_a_step_that_lacks_something) {
  write_whole_step(*writer());
  sweep_failures(25, [&](std::uint64_t n, bool lasting) {
    // A new one, whose tables all grow.
    auto writing = writer();
    in_doubt_ = {writing->current_step(), ++content_};
    EXPECT_TRUE(writing->begin_step());
    const bool failed = fails_at(n, lasting, [&] { return put_content(*writing, content_); });
    if (put_content(*writing, content_) && writing->end_step()) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    writing.reset();
    check_stream();
    write_whole_step(*writer());
    check_stream();
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of ending a step with so much metadata that its buffer grows, once, and from then on; the program ends the step again | the step, whole
TEST_F(FailingMemoryTest, in_ending_a_step_of_many_variables_can_be_followed_by_ending_it_again) {
  constexpr int variables = 4000;  // more than the buffer holds at first
  const auto name = [](int variable) { return "variable" + std::to_string(variable); };
  const auto check = [&](std::uint64_t number) {
    const auto reading = reader_at_random();
    const auto step = reading->step(number);
    ASSERT_OK(step);
    for (int i = 0; i < variables; ++i) {
      const VariableInfo* variable = (*step)->find(name(i));
      ASSERT_NE(variable, nullptr);
      double value = -1;
      ASSERT_OK((*step)->read(*variable, {}, &value));
      ASSERT_EQ(value, i);
    }
  };
  sweep_failures(20, [&](std::uint64_t n, bool lasting) {
    // A new one, whose buffer is small.
    auto writing = writer();
    const std::uint64_t number = writing->current_step();
    EXPECT_TRUE(writing->begin_step());
    for (int i = 0; i < variables; ++i) {
      const double value = i;
      EXPECT_TRUE(writing->put({name(i), DataType::float64, ShapeKind::global_value, {}, {}, {}, {}, {}}, &value));
    }
    bool ended = false;
    const bool failed = fails_at(n, lasting, [&] {
      auto end = writing->end_step();
      ended = end.has_value();
      return end;
    });
    if (!ended) {
      const auto again = writing->end_step();
      EXPECT_TRUE(again || again.error().code == ErrorCode::group_broken) << again.error().message();
      ended = again.has_value();
    }
    writing.reset();
    if (ended) check(number);
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of abort_step, once, and from then on; the program ends the step all the same | the step is there whole or not at all
TEST_F(FailingMemoryTest, in_giving_a_step_up_never_lets_a_part_of_it_be_committed) {
  sweep_failures(5, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    write_whole_step(*writing);
    const std::uint64_t number = writing->current_step();
    EXPECT_TRUE(writing->begin_step());
    EXPECT_TRUE(put_content(*writing, ++content_));
    const bool failed = fails_at(n, lasting, [&] { return writing->abort_step(); });
    if (writing->in_step()) {
      // Where nothing was done about it yet it is whole.
      if (writing->end_step()) committed_[number] = content_;
      if (writing->in_step()) (void)writing->abort_step();
    }
    EXPECT_FALSE(writing->end_step());
    writing.reset();
    check_stream();
    write_whole_step(*writer());
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of ending a step whose blocks cannot be written, once, and from then on; the program ends the step again | the step is there whole or not at all
TEST_F(FailingMemoryTest, beside_a_write_that_fails_makes_no_step_that_lacks_something) {
  server_.share_with_clients();
  write_whole_step(*writer());
  sweep_failures(3, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    in_doubt_ = {writing->current_step(), ++content_};
    EXPECT_TRUE(writing->begin_step());
    EXPECT_TRUE(put_content(*writing, content_));
    server_.disk().fail_at(Operation::write, 1);
    const bool failed = fails_at(n, lasting, [&] { return writing->end_step(); });
    if (writing->end_step()) committed_.insert(*in_doubt_);
    in_doubt_.reset();
    writing.reset();
    server_.disk().fail_at(Operation::write, 0);
    check_stream();
    write_whole_step(*writer());
    check_stream();
    return failed;
  });
}

// crash-matrix: no memory | writer, any allocation of a put that asks for space, once, and from then on | the space: the same writer has all of it for its next step
TEST_F(FailingMemoryTest, in_asking_for_space_loses_none) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  writer_options_.when_full = WhenFull::error;
  const auto put = [](Writer& writing, std::uint64_t bytes) {
    static const std::vector<double> values(6 * mib / sizeof(double), 1.0);
    const Dimensions shape{bytes / sizeof(double)};
    const Dimensions zeros{0};
    BlockSpec block;
    block.name = "large";
    block.type = DataType::float64;
    block.shape = shape;
    block.start = zeros;
    block.count = shape;
    return writing.put(block, values.data());
  };
  sweep_failures(17, [&](std::uint64_t n, bool lasting) {
    auto writing = writer();
    EXPECT_TRUE(writing->begin_step());
    const bool failed = fails_at(n, lasting, [&] { return put(*writing, 2 * mib); });
    if (writing->in_step() && writing->abort_step() && writing->begin_step()) {
      const auto again = put(*writing, 6 * mib);
      EXPECT_TRUE(again || again.error().code == ErrorCode::group_broken) << again.error().message();
    }
    return failed;
  });
}

// crash-matrix: no memory | reader, any allocation of next, of reading a step or of letting go of it, once, and from then on | every step, with its content; the same reader goes on with this step or the next; another one of the same consumer goes on behind the step that was acknowledged (where the acknowledgement failed: with it or behind it)
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
