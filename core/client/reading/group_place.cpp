// SPDX-License-Identifier: Apache-2.0
#include "client/reading/group_place.h"

#include <pthread.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "protocol/unpacked.h"

namespace forebay::client {
namespace {

struct Ordinals {
  std::uint64_t next = 0;
  std::set<std::uint64_t> given_back;
};

constinit std::mutex ordinals_mutex;

// Guarded by ordinals_mutex. Never destroyed: a reader may be let go of after all static objects.
std::map<std::string, Ordinals>& ordinals() {
  static auto* const all = new std::map<std::string, Ordinals>();
  return *all;
}

// A forked child finds the mutex free.
void hold_over_forks() {
  static const int handled =
      ::pthread_atfork([] { ordinals_mutex.lock(); }, [] { ordinals_mutex.unlock(); }, [] { ordinals_mutex.unlock(); });
  (void)handled;
}

}  // namespace

GroupOrdinal::GroupOrdinal(std::string name) : name_(std::move(name)) {
  hold_over_forks();
  const std::lock_guard lock(ordinals_mutex);
  Ordinals& of_name = ordinals()[name_];
  if (of_name.given_back.empty()) {
    number_ = of_name.next++;
  } else {
    number_ = *of_name.given_back.begin();
    of_name.given_back.erase(of_name.given_back.begin());
  }
}

GroupOrdinal::~GroupOrdinal() {
  if (kept_) return;
  const std::lock_guard lock(ordinals_mutex);
  ordinals()[name_].given_back.insert(number_);
}

GroupPlace::GroupPlace(const Address& address, const ReaderOptions& options)
    : options_(options), ordinal_(address.path() + '\n' + options.group + '\n' + options.consumer) {}

void GroupPlace::tell(wire::ReaderOpenT& request) const {
  request.rank = options_.rank;
  request.ranks = options_.ranks;
  request.ranks_source = options_.ranks_source;
  request.group = options_.group;
  request.ordinal = ordinal_.number();
  request.turn_timeout_ms = options_.turn_timeout_ms;
  request.on_reader_lost = static_cast<std::uint8_t>(options_.on_reader_lost);
  request.lists = options_.lists;
  if (!request.resume) return;
  request.group_number = group_number_;
  request.told = std::make_unique<wire::TurnT>(turn_);
  request.gone = gone_;
}

void GroupPlace::opened(const wire::ReaderOpened& opened) {
  ordinal_.keep();
  group_number_ = opened.group_number();
  // A rank that the group had gone on without joins at a later turn.
  if (turn_.number == opened.turn()) return;
  turn_ = wire::TurnT();
  turn_.number = opened.turn();
}

void GroupPlace::answered(const wire::StepEvent& event) {
  turn_ = wire::TurnT();
  turn_.number = event.turn();
  turn_.kind = event.kind();
  turn_.status = event.status();
  turn_.text = protocol::text_of(event.text());
  if (event.step() != nullptr && event.step()->summary() != nullptr) {
    const wire::StepSummary& summary = *event.step()->summary();
    turn_.key = std::make_unique<wire::StepKey>(summary.step(), summary.epoch(), 0);
  }
  gone_.clear();
  if (event.gone() != nullptr) gone_.assign(event.gone()->begin(), event.gone()->end());
}

void GroupPlace::failed(const Error& error) {
  const std::uint64_t number = turn_.number + 1;
  turn_ = wire::TurnT();
  turn_.number = number;
  turn_.code = static_cast<std::uint8_t>(error.code);
  turn_.text = error.what;
}

}  // namespace forebay::client
