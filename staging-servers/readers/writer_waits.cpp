// SPDX-License-Identifier: Apache-2.0
#include "readers/writer_waits.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "readers/follower.h"

namespace forebay::server {

std::string quoted_run(std::string_view run) {
  constexpr std::size_t shown_max = 64;
  return fmt::format("\"{}{}\"", run.substr(0, shown_max), run.size() > shown_max ? "..." : "");
}

bool WriterWaits::has_writer_for(const wire::ReaderOpenT& asked) const {
  if (asked.resume) return true;
  if (asked.wait_for_writer) {
    const bool lives = stream_.has_living_writer() && state_.group;
    return lives && (asked.run.empty() || state_.group->run == asked.run);
  }
  return asked.run.empty() || state_.steps_of_run(asked.run);
}

void WriterWaits::add(Follower& reader) {
  waiting_.emplace(reader.number, &reader);
}

void WriterWaits::remove(const Follower& reader) {
  waiting_.erase(reader.number);
}

void WriterWaits::writer_came() {
  // Going on changes the set.
  const FollowersByNumber waiting = waiting_;
  for (const auto& [number, reader] : waiting) {
    if (!waiting_.contains(number) || !has_writer_for(reader->asked())) continue;
    waiting_.erase(number);
    reader->writer_came();
  }
}

void WriterWaits::writer_refused(const std::string& run, const std::string& why) {
  // Who is told leaves the set.
  const FollowersByNumber waiting = waiting_;
  for (const auto& [number, reader] : waiting) reader->writer_refused(run, why);
}

void WriterWaits::stream_removed() {
  for (const auto& [number, reader] : std::exchange(waiting_, {})) reader->awaited_stream_removed();
}

std::uint32_t WriterWaits::count(const std::string& run) const {
  return static_cast<std::uint32_t>(std::ranges::count_if(waiting_, [&](const auto& entry) {
    const std::string& wanted = entry.second->asked().run;
    return wanted.empty() || wanted == run;
  }));
}

std::string WriterWaits::describe(const wire::ReaderOpenT& asked) const {
  const std::string of_run = asked.run.empty() ? "" : " of run " + quoted_run(asked.run);
  std::string last = "it has had no writer yet";
  if (state_.group) {
    last = fmt::format("its last group {} and is {}",
                       state_.group->run.empty() ? "named no run" : "was of run " + quoted_run(state_.group->run),
                       to_string(state_.status));
  }
  return fmt::format("waited {} s for a {}writer group{} of the stream, and none came ({}); start the writer{}",
                     static_cast<double>(asked.open_timeout_ms) / 1000, asked.wait_for_writer ? "living " : "", of_run,
                     last, asked.run.empty() ? "" : " with the same Run");
}

void WriterWaits::describe_waits(std::vector<StreamWait>& waits) const {
  for (const auto& [number, reader] : waiting_) {
    const wire::ReaderOpenT& asked = reader->asked();
    std::string wanted = asked.wait_for_writer ? "a living writer group" : "a writer group";
    if (!asked.run.empty()) wanted += " of run " + quoted_run(asked.run);
    waits.push_back(reader_wait(*reader, StreamWait::Kind::writer, std::move(wanted)));
  }
}

}  // namespace forebay::server
