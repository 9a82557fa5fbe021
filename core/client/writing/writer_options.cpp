// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>

#include <forebay/reader.h>
#include <forebay/writer_options.h>

namespace forebay {
namespace {

/// The field's new value, or why there is none.
template <class Field, class Value>
Result<void> store(Field& field, Result<Value> parsed) {
  if (!parsed) return fail(std::move(parsed.error()));
  field = std::move(*parsed);
  return {};
}

char lower(char c) noexcept {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

/// Terms compare without case; names of consumers, which follow the colon, do not.
std::string lower_terms(std::string_view text) {
  std::string terms(text);
  bool in_word = true;
  for (char& c : terms) {
    if (c == ':' || c == ',') in_word = c == ',';
    if (in_word) c = lower(c);
  }
  return terms;
}

using Text = std::string_view;
using Options = WriterOptions;

constexpr WriterOption table[] = {
    {"timeout", "OpenTimeoutSecs", "seconds", "60",
     "How long Open waits: a reader for the stream to exist and for the writer that `Run` or `WaitForWriter` asks for, "
     "a writer for all ranks and for `RendezvousReaderCount` readers. Negative: for ever.",
     [](Options& options, Text text) { return store(options.open_timeout_ms, parse_seconds(text)); }},
    {"reconnect_timeout", "ReconnectTimeoutSecs", "seconds", "60", "How long to wait for a server that restarts.",
     [](Options& options, Text text) { return store(options.reconnect_timeout_ms, parse_seconds(text)); }},
    {"distribution", "StepDistributionMode", "AllToAll, RoundRobin, OnDemand", "AllToAll",
     "How readers of one `Consumer` name, or readers without a name, share the steps: everyone gets all, they take "
     "turns, or each step goes to whoever asks first. A reader's setting overrides the writer's.",
     [](Options& options, Text text) { return store(options.distribution, parse_distribution(text)); }},
    {"rendezvous_readers", "RendezvousReaderCount", "integer", "0",
     "Open waits until this many readers have opened the stream, or wait for its writer.",
     [](Options& options, Text text) {
       return store(options.rendezvous_readers, parse_integer<std::uint32_t>(text, "a number from 0"));
     }},
    {"append_after", "AppendAfter", "integer", "",
     "Number of the last step to keep when a stream is appended to; the steps after it are withdrawn.",
     [](Options& options, Text text) {
       return store(options.append_after, parse_integer<std::uint64_t>(text, "the number of a step"));
     }},
    {"force", "Force", "true, false", "false",
     "Replace or withdraw steps even if precious ones among them are not staged yet.",
     [](Options& options, Text text) { return store(options.force, parse_bool(text)); }},
    {"run", "Run", "text", "",
     "Names a coupling: the same text for the writer's ranks and for readers, and again after a restart. It is "
     "recorded "
     "with the writer group. A reader waits until a group of this run has formed, and takes no step of another run.",
     [](Options& options, Text text) {
       options.run = text;
       return Result<void>();
     }},
    {"retention", "Retention", "all, or terms last:N, first:N, consumers:NAME+NAME, precious:N",
     "the stream's; all for a new one",
     "Which steps the stream keeps: the last N, those that named consumers have not passed, the first N until the "
     "stream has ended, every Nth until it is staged out. Terms are separated by commas.",
     [](Options& options, Text text) { return store(options.retention, parse_retention(lower_terms(text))); }},
    {"when_full", "WhenFull", "block, drop_oldest, error", "block",
     "What a step does when the reservation is full (at its beginning, or when it grows): wait, drop the oldest steps "
     "that nobody needs, or fail.",
     [](Options& options, Text text) {
       return store(options.when_full, parse_choice<WhenFull>(text, {{"block", WhenFull::block},
                                                                     {"drop_oldest", WhenFull::drop_oldest},
                                                                     {"error", WhenFull::error}}));
     }},
    {"block_timeout", "BlockTimeoutSecs", "seconds", "60",
     "The longest wait for space with `WhenFull=block`, and for readers with `LagLimit`. Negative: for ever.",
     [](Options& options, Text text) { return store(options.block_timeout_ms, parse_seconds(text)); }},
    {"lag_limit", "LagLimit", "integer", "0",
     "A step begins only when no connected reader, with a name or without, is more than this many steps behind. A "
     "reader "
     "at step 5 is 3 behind if step 8 is the newest. Readers that close or die, or that skip to the newest step, do "
     "not "
     "count. The wait is an error after `BlockTimeoutSecs`. 0: never wait.",
     [](Options& options, Text text) {
       return store(options.lag_limit, parse_integer<std::uint64_t>(text, "a number of steps; 0: no limit"));
     }},
    {"durability", "Durability", "committed, durable", "committed",
     "What the end of a step waits for: the step survives the death of any process (committed) or power loss "
     "(durable).",
     [](Options& options, Text text) {
       return store(options.durability, parse_choice<Durability>(text, {{"committed", Durability::committed},
                                                                        {"durable", Durability::durable}}));
     }},
    {"grace", "GraceSecs", "seconds", "10",
     "How long readers wait for a restart when this group is lost, before their stream ends as interrupted.",
     [](Options& options, Text text) { return store(options.grace_ms, parse_seconds(text)); }},
    {"statistics", "StatsLevel", "integer, true, false", "1",
     "0 or false leaves out the minimum and maximum of every block.",
     [](Options& options, Text text) {
       if (auto chosen = parse_bool(text)) return store(options.statistics, std::move(chosen));
       auto level = parse_integer<std::uint32_t>(text, "a number from 0");
       if (level) options.statistics = *level > 0;
       return level ? Result<void>() : fail(std::move(level.error()));
     }},
    {"checksums", "Checksums", "true, false", "true", "The CRC-32C of every block.",
     [](Options& options, Text text) { return store(options.checksums, parse_bool(text)); }},
};

}  // namespace

std::span<const WriterOption> writer_options() noexcept {
  return table;
}

const WriterOption* find_writer_option(std::string_view name) noexcept {
  const auto* found = std::ranges::find(table, name, &WriterOption::name);
  return found == std::end(table) ? nullptr : found;
}

bool is_same_word(std::string_view left, std::string_view right) noexcept {
  const auto skip = [](std::string_view& text) {
    while (!text.empty() && (text.front() == '-' || text.front() == '_')) text.remove_prefix(1);
  };
  for (skip(left), skip(right); !left.empty() && !right.empty(); skip(left), skip(right)) {
    if (lower(left.front()) != lower(right.front())) return false;
    left.remove_prefix(1);
    right.remove_prefix(1);
  }
  return left.empty() && right.empty();
}

Result<bool> parse_bool(std::string_view text) {
  for (const std::string_view word : {"true", "yes", "on", "1"}) {
    if (std::ranges::equal(text, word, {}, lower)) return true;
  }
  for (const std::string_view word : {"false", "no", "off", "0"}) {
    if (std::ranges::equal(text, word, {}, lower)) return false;
  }
  return fail(ErrorCode::invalid_argument, "expected true or false");
}

Result<std::int64_t> parse_seconds(std::string_view text) {
  double seconds{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool number = !text.empty() && error == std::errc{} && end == text.data() + text.size();
  if (!number || !std::isfinite(seconds) || seconds > 1e12)
    return fail(ErrorCode::invalid_argument, "expected seconds, for example 60 or 0.5; negative: for ever");
  return seconds < 0 ? -1 : static_cast<std::int64_t>(std::ceil(seconds * 1000));
}

Result<std::uint8_t> parse_distribution(std::string_view text) {
  return parse_choice<std::uint8_t>(text,
                                    {{"AllToAll", static_cast<std::uint8_t>(StepDistribution::all_to_all)},
                                     {"RoundRobin", static_cast<std::uint8_t>(StepDistribution::round_robin)},
                                     {"OnDemand", static_cast<std::uint8_t>(StepDistribution::on_demand)},
                                     {"StreamDefault", static_cast<std::uint8_t>(StepDistribution::stream_default)}});
}

}  // namespace forebay
