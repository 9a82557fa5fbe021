// SPDX-License-Identifier: Apache-2.0
// Connections that have not said yet, or not proved, who they are. They are few, and for a new one to have a place the
// oldest goes of the user or address that has most: whoever fills the places takes its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <unordered_map>

namespace forebay::server {

class Connection;

class Strangers {
 public:
  explicit Strangers(std::size_t places) noexcept : places_(places) {}

  /// `whose`: a user or an address.
  void add(Connection& connection, const std::string& whose);
  /// It is none any more, or never was one.
  void remove(const Connection& connection);
  std::size_t count() const noexcept { return by_connection_.size(); }
  /// The connection that is to end; null while there is a place for all.
  Connection* surplus() const;

 private:
  struct Waiting {
    Connection* connection = nullptr;
    std::uint64_t order = 0;  ///< in which they came
  };
  using Line = std::list<Waiting>;
  const std::size_t places_;
  std::map<std::string, Line> lines_;  ///< by whose they are, the oldest first; none is empty
  struct Place {
    std::string whose;
    Line::iterator in_line;
  };
  std::unordered_map<const Connection*, Place> by_connection_;
  std::uint64_t added_ = 0;
};

}  // namespace forebay::server
