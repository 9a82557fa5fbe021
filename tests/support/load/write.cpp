// SPDX-License-Identifier: Apache-2.0
#include "write.h"

#include <unistd.h>

#include <iostream>
#include <string>

#include "events.h"

namespace forebay::load {
namespace {

class Rank {
 public:
  Rank(std::unique_ptr<Writer> writer, const WriteOptions& options) : writer_(std::move(writer)), options_(options) {}

  bool begin() {
    auto begun = writer_->begin_step();
    if (!begun) return failed("begin_step", begun.error());
    say("begun", {{"step", *begun}});
    return true;
  }

  bool put() {
    if (auto put = put_part(*writer_, options_.shape, options_.writer.rank, buffer_); !put)
      return failed("put", put.error());
    say("put", {{"step", writer_->current_step()}});
    return true;
  }

  bool end() {
    const std::uint64_t step = writer_->current_step();
    say("ending", {{"step", step}});
    if (auto ended = writer_->end_step(); !ended) return failed("end_step", ended.error());
    say("committed", {{"step", step},
                      {"incarnation", std::uint64_t{writer_->incarnation()}},
                      {"epoch", std::uint64_t{writer_->epoch()}}});
    return true;
  }

  bool abort() {
    const std::uint64_t step = writer_->current_step();
    if (auto aborted = writer_->abort_step(); !aborted) return failed("abort_step", aborted.error());
    say("aborted", {{"step", step}});
    return true;
  }

  /// One step, which is given up and written again where a server that went away had a part of it.
  bool step() {
    for (std::uint64_t attempt = 1;; ++attempt) {
      if (begin() && put() && end()) return true;
      if (!is_lost_ || attempt >= options_.attempts) return false;
      if (writer_->in_step() && !abort()) return false;
      ::usleep(static_cast<useconds_t>(options_.pause_us));
    }
  }

  bool close() {
    say("closing");
    if (auto closed = writer_->close(); !closed) return failed("close", closed.error());
    say("closed");
    return true;
  }

  bool obey(const std::string& command) {
    if (command == "begin") return begin();
    if (command == "put") return put();
    if (command == "end") return end();
    if (command == "abort") return abort();
    if (command == "step") return step();
    if (command == "close") return close();
    say("error",
        {{"call", command}, {"code", std::string("invalid_argument")}, {"what", std::string("no such command")}});
    return false;
  }

 private:
  bool failed(std::string_view call, const Error& error) {
    say_error(call, error);
    // What was lost on its way to the home has another code than what was lost on its way to a member.
    is_lost_ = error.code == ErrorCode::unavailable || error.what.find("write the step again") != std::string::npos;
    return false;
  }

  std::unique_ptr<Writer> writer_;
  const WriteOptions& options_;
  std::vector<std::uint64_t> buffer_;
  bool is_lost_ = false;  // what failed last did so as a server went away: the step may be written again
};

}  // namespace

int write_stream(const WriteOptions& options) {
  say("opening", {{"rank", std::uint64_t{options.writer.rank}}, {"pid", static_cast<std::uint64_t>(::getpid())}});
  auto writer = Writer::open(options.address, options.writer);
  if (!writer) {
    say_error("open", writer.error());
    return 1;
  }
  say("opened", {{"incarnation", std::uint64_t{(*writer)->incarnation()}},
                 {"epoch", std::uint64_t{(*writer)->epoch()}},
                 {"next", (*writer)->current_step()}});
  Rank rank(std::move(*writer), options);
  if (options.commands) {
    // A failure is said, and the next command shows what the writer does after it.
    bool well = true;
    for (std::string command; std::getline(std::cin, command);) well = rank.obey(command);
    return well ? 0 : 1;
  }
  for (std::uint64_t done = 0; options.steps == 0 || done < options.steps; ++done) {
    if (!rank.step()) return 1;
    if (options.pause_us > 0) ::usleep(static_cast<useconds_t>(options.pause_us));
  }
  return rank.close() ? 0 : 1;
}

}  // namespace forebay::load
