// SPDX-License-Identifier: Apache-2.0
#include "loop/strangers.h"

#include <algorithm>

namespace forebay::server {

void Strangers::add(Connection& connection, const std::string& whose) {
  Line& line = lines_[whose];
  by_connection_[&connection] = {whose, line.insert(line.end(), Waiting{&connection, ++added_})};
}

void Strangers::remove(const Connection& connection) {
  const auto found = by_connection_.find(&connection);
  if (found == by_connection_.end()) return;
  const auto line = lines_.find(found->second.whose);
  line->second.erase(found->second.in_line);
  if (line->second.empty()) lines_.erase(line);
  by_connection_.erase(found);
}

Connection* Strangers::surplus() const {
  if (by_connection_.size() <= places_) return nullptr;
  const auto more = [](const auto& one, const auto& other) {
    const Line& line = one.second;
    return line.size() != other.second.size() ? line.size() < other.second.size()
                                              : line.front().order > other.second.front().order;
  };
  return std::ranges::max_element(lines_, more)->second.front().connection;
}

}  // namespace forebay::server
