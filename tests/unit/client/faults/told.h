// SPDX-License-Identifier: Apache-2.0
// What the clients of a reservation have sent and were told, and whether the streams that a server shows are those: the
// oracle of the fault sweeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <forebay/admin.h>
#include <forebay/reader.h>

#include "storage/stream_state.h"

namespace forebay::testing {

/// A place between the steps of a stream: steps of lower numbers lie before it.
struct Place {
  std::uint32_t epoch = 0;
  std::uint64_t next = 0;
};

/// One stream as its clients know it.
struct ToldStream {
  bool checksums = true;
  Retention retention;
  /// The newest so many are there although its writers drop the oldest when the reservation is full.
  std::optional<std::uint64_t> kept_when_full;

  // What may be there
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::set<std::uint64_t>> sent;  ///< contents by (epoch, number)
  std::map<std::uint32_t, std::uint64_t> rewinds;             ///< epochs that were begun, and their first steps
  std::multimap<std::uint32_t, std::uint64_t> maybe_rewinds;  ///< those that calls which failed may have begun
  std::uint64_t cursor_highest = 0;
  bool may_be_gone = false;  ///< its removal was asked for

  // What must be there
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> committed_contents;
  std::optional<Place> committed;
  std::optional<Place> durable;
  std::optional<Place> cursor;
  std::optional<Place> cursor_durable;

  /// Call it when everything up to here was told to be durable.
  void all_durable() {
    durable = committed;
    cursor_durable = cursor;
  }
  /// Call it when power was lost.
  void only_durable() {
    committed = durable;
    cursor = cursor_durable;
  }
};

/// By name.
using Told = std::map<std::string, ToldStream>;

using RecordVisitor =
    std::function<Result<void>(const std::string& stream, journal::RecordType type, std::span<const std::byte> body)>;

/// Shows the records of all streams' journals on disk, which are not changed. Returns the streams whose journals are
/// whole.
std::set<std::string> visit_journals(const std::string& root, const RecordVisitor& visit);

/// What the journals of all streams on disk say, as they are: nothing is cut or changed. By name; streams without a
/// whole journal are left out.
std::map<std::string, storage::StreamState> states_on_disk(const std::string& root);

/// The first step of each stream that was not durable and whose space a durable step of another stream has: power was
/// lost behind that one, and with it the record that dropped the first. By stream.
std::map<std::string, std::uint64_t> overtaken_steps(const std::map<std::string, storage::StreamState>& states);

/// How a reservation's streams look to clients, but for watermarks, which rise by themselves, and for
/// dropped steps, which a loss of power may bring back; comparable.
std::string description(Admin& admin, const std::string& reservation);

/// What a check takes for promised.
enum class Promise { committed, durable };

/// Expects of every stream that it is what was promised or longer, and nothing that was not sent; and that all its
/// steps can be read. `before`: what the journals said when the server was started after a loss of power. Streams are
/// cut at their overtaken steps.
void check_streams(const Told& told, Promise promise, Admin& admin, const std::string& reservation,
                   const std::map<std::string, storage::StreamState>* before = nullptr);

/// Expects an audit without problems, but for streams of status failed.
void check_audit(Admin& admin, bool failed_streams_allowed);

}  // namespace forebay::testing
