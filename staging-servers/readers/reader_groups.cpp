// SPDX-License-Identifier: Apache-2.0
#include "readers/reader_groups.h"

#include <utility>

#include <fmt/format.h>

#include "base/return_error.h"
#include "base/uuid.h"
#include "readers/reader_registry.h"
#include "readers/reader_session.h"
#include "storage/record_check.h"

namespace forebay::server {
namespace {

constexpr std::size_t gone_max = 65536;

ReaderGroupName name_of(const ReaderSession& session) {
  const wire::ReaderOpenT& asked = session.asked();
  const Peer& peer = session.connection().peer();
  return {peer.remote ? peer.remote->uid : peer.uid, asked.reservation + "/" + asked.stream, asked.group,
          asked.consumer, asked.ordinal};
}

}  // namespace

Result<std::shared_ptr<ReaderGroup>> ReaderGroups::admit(ReaderSession& session, StreamsToRead& streams) {
  const wire::ReaderOpenT& asked = session.asked();
  ReaderGroupName name = name_of(session);
  const std::string where = "stream " + name.path;
  if (asked.ranks > storage::ranks_max || asked.rank >= asked.ranks) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("rank {} of {} is impossible (number of ranks from {})", asked.rank, asked.ranks,
                            asked.ranks_source),
                where);
  }
  if (asked.gone.size() > gone_max)
    return fail(ErrorCode::invalid_argument, "too many ranks are said to be gone", where);
  std::shared_ptr<ReaderGroup> known;
  if (asked.resume) {
    if (const auto found = by_number_.find(asked.group_number); found != by_number_.end()) known = found->second;
    // Somebody else's number: as if there were no such group.
    if (known && known->group_name() != name) return fail(ErrorCode::group_broken, "there is no such group", where);
  } else if (const auto found = by_name_.find(name); found != by_name_.end()) {
    known = found->second.lock();
  }
  if (!known) return make(session, streams, std::move(name));
  if (auto refused = known->refusal(session)) return fail(std::move(*refused));
  return known;
}

Result<std::shared_ptr<ReaderGroup>> ReaderGroups::make(ReaderSession& session, StreamsToRead& streams,
                                                        ReaderGroupName name) {
  const wire::ReaderOpenT& asked = session.asked();
  const std::uint64_t number = asked.resume ? asked.group_number : random_number();
  auto group = std::make_shared<ReaderGroup>(loop_, streams, registry_, name, asked, number);
  by_number_.insert_or_assign(number, group);
  by_name_.insert_or_assign(std::move(name), group);
  return group;
}

void ReaderGroups::forget(const ReaderGroup& group) {
  // Its last owner may be the table.
  if (const auto found = by_name_.find(group.group_name());
      found != by_name_.end() && found->second.lock().get() == &group)
    by_name_.erase(found);
  if (const auto found = by_number_.find(group.group_number());
      found != by_number_.end() && found->second.get() == &group)
    by_number_.erase(found);
}

std::size_t ReaderGroups::check() const {
  std::size_t items = 1;
  for (const auto& [number, group] : by_number_) items += group->turns().check();
  return items;
}

}  // namespace forebay::server
