// SPDX-License-Identifier: Apache-2.0
#include "read.h"

#include <unistd.h>

#include <deque>
#include <iostream>
#include <sstream>
#include <string>

#include "events.h"

namespace forebay::load {
namespace {

constexpr int violated = 3;

void say_unavailable(std::uint64_t step, const std::string& what) {
  say("unavailable", {{"step", step}, {"what", what}});
}

class Follower {
 public:
  Follower(std::unique_ptr<Reader> reader, const ReadOptions& options)
      : reader_(std::move(reader)), options_(options) {}

  /// Waits for what comes next and checks it. False at the end, whatever it was.
  bool next() {
    auto next = reader_->next(options_.timeout_ms);
    if (!next) {
      say_error("next", next.error());
      // Without a pin a step may go while it is read; the next one is another matter.
      if (next.error().code == ErrorCode::step_gone) {
        if (expected_) ++*expected_;
        return true;
      }
      status_ = 1;
      return false;
    }
    switch (next->kind) {
      case NextStep::Kind::step:
        take(*next);
        return true;
      case NextStep::Kind::notice:
        say("notice", {{"status", std::string(to_string(next->status))}, {"text", next->text}});
        return true;
      case NextStep::Kind::end_of_stream:
        say("end", {{"status", std::string(to_string(next->status))}, {"text", next->text}});
        return false;
      case NextStep::Kind::not_ready:
        break;
    }
    say("not_ready");
    if (!options_.commands) status_ = 2;
    return options_.commands;
  }

  void get(std::uint64_t number) {
    auto step = reader_->step(number);
    if (!step) {
      say_error("step", step.error());
      return;
    }
    say("got",
        {{"step", (*step)->number()}, {"epoch", std::uint64_t{(*step)->epoch()}}, {"pinned", (*step)->pinned()}});
    check(*step);
    keep(*step);
  }

  void acknowledge() {
    if (held_.empty()) return;
    if (auto acknowledged = reader_->acknowledge(*held_.back().step); !acknowledged) {
      say_error("acknowledge", acknowledged.error());
      return;
    }
    say("acknowledged", {{"step", held_.back().step->number()}});
  }

  void seek(std::uint64_t step) {
    if (auto sought = reader_->seek(step); !sought) {
      say_error("seek", sought.error());
      return;
    }
    expected_.reset();
    say("sought", {{"step", step}});
  }

  /// Looks at everything held again.
  void compare() {
    std::uint64_t views = 0;
    for (const Held& held : held_) {
      views += held.views.size();
      complain(check_views(held.views, options_.address.stream));
      check(held.step);
    }
    say("compared", {{"steps", std::uint64_t{held_.size()}}, {"views", views}});
  }

  void release() {
    compare();
    held_.clear();
    say("released");
  }

  bool obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    std::uint64_t number = 0;
    words >> command >> number;
    if (command == "next") return next();
    if (command == "get")
      get(number);
    else if (command == "ack")
      acknowledge();
    else if (command == "seek")
      seek(number);
    else if (command == "compare")
      compare();
    else if (command == "release")
      release();
    else
      say("error",
          {{"call", command}, {"code", std::string("invalid_argument")}, {"what", std::string("no such command")}});
    return true;
  }

  std::uint64_t taken() const { return taken_; }
  int status() const { return status_; }

 private:
  struct Held {
    std::shared_ptr<const Step> step;
    std::vector<HeldView> views;
  };

  void take(const NextStep& next) {
    const Step& step = *next.step;
    say("step", {{"step", step.number()},
                 {"epoch", std::uint64_t{step.epoch()}},
                 {"incarnation", std::uint64_t{step.summary().incarnation}},
                 {"pinned", step.pinned()},
                 {"rewound", next.rewound},
                 {"skipped", next.skipped}});
    if (options_.ordered) check_order(next);
    expected_ = step.number() + 1;
    epoch_ = step.epoch();
    ++taken_;
    check(next.step);
    keep(next.step);
    if (options_.acknowledge) acknowledge();
  }

  void check_order(const NextStep& next) {
    const std::uint64_t number = next.step->number();
    if (next.step->epoch() < epoch_)
      complain({"step " + std::to_string(number) + " comes from an earlier epoch than the one before it"});
    if (!expected_) return;
    const std::uint64_t due = *expected_ + next.skipped;
    const bool right = next.rewound ? number <= due : number == due;
    if (!right) complain({"step " + std::to_string(number) + " came where " + std::to_string(due) + " was due"});
  }

  void check(const std::shared_ptr<const Step>& step) {
    const StepFindings found = check_step(*step, options_.address.stream, options_.losses);
    if (!found.gone.empty()) say("gone", {{"step", step->number()}, {"pinned", step->pinned()}, {"what", found.gone}});
    if (!found.unavailable.empty()) say_unavailable(step->number(), found.unavailable);
    complain(found.wrong);
  }

  void keep(const std::shared_ptr<const Step>& step) {
    Held held{step, {}};
    if (step->pinned() && options_.hold > 0) {
      auto views = hold_views(*step);
      if (views) {
        held.views = std::move(*views);
      } else {
        say_error("view", views.error());
      }
    }
    held_.push_back(std::move(held));
    while (held_.size() > std::max<std::size_t>(options_.hold, 1)) {
      complain(check_views(held_.front().views, options_.address.stream));
      held_.pop_front();
    }
  }

  void complain(const std::vector<std::string>& wrong) {
    for (const std::string& what : wrong) {
      say("violation", {{"what", what}});
      status_ = violated;
    }
  }

  std::unique_ptr<Reader> reader_;
  const ReadOptions& options_;
  std::optional<std::uint64_t> expected_;
  std::uint32_t epoch_ = 0;
  std::uint64_t taken_ = 0;
  int status_ = 0;
  std::deque<Held> held_;
};

}  // namespace

int follow_stream(const ReadOptions& options) {
  say("opening", {{"pid", static_cast<std::uint64_t>(::getpid())}});
  auto reader = Reader::open(options.address, options.reader);
  if (!reader) {
    say_error("open", reader.error());
    return 1;
  }
  say("opened");
  Follower follower(std::move(*reader), options);
  if (options.commands) {
    for (std::string line; std::getline(std::cin, line) && follower.obey(line);) {
    }
    return follower.status();
  }
  while ((options.steps == 0 || follower.taken() < options.steps) && follower.next()) {
  }
  follower.release();
  return follower.status();
}

int check_stream(const ReadOptions& options) {
  ReaderOptions reading = options.reader;
  reading.follow = false;
  reading.verify = options.unchecked ? Verify::none : Verify::read;
  auto reader = Reader::open(options.address, reading);
  if (!reader) {
    say_error("open", reader.error());
    return 1;
  }
  auto steps = (*reader)->steps();
  if (!steps) {
    say_error("steps", steps.error());
    return 1;
  }
  int status = 0;
  for (const StepSummary& summary : *steps) {
    auto step = (*reader)->step(summary.step);
    if (!step && step.error().code == ErrorCode::unavailable) {
      say_unavailable(summary.step, step.error().message());
      continue;
    }
    if (!step) {
      say_error("step", step.error());
      // Retention may have dropped it since the list was made.
      if (step.error().code != ErrorCode::step_gone) status = violated;
      continue;
    }
    const StepFindings found = check_step(**step, options.address.stream, options.losses);
    for (const std::string& what : found.wrong) {
      say("violation", {{"what", what}});
      status = violated;
    }
    if (!found.gone.empty()) {
      say("gone", {{"step", (*step)->number()}});
      continue;
    }
    if (!found.unavailable.empty()) {
      say_unavailable((*step)->number(), found.unavailable);
      continue;
    }
    say("step", {{"step", (*step)->number()},
                 {"epoch", std::uint64_t{(*step)->epoch()}},
                 {"incarnation", std::uint64_t{(*step)->summary().incarnation}}});
  }
  say("checked", {{"steps", std::uint64_t{steps->size()}}});
  return status;
}

}  // namespace forebay::load
