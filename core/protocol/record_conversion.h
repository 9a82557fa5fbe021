// SPDX-License-Identifier: Apache-2.0
// Converts the public API's records to the wire's tables and back. Each record's `each_field` lists its fields: a field
// that is added there is carried in both directions, once messages.fbs has it under the same name.
#pragma once

#include <cassert>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <forebay/admin.h>
#include <forebay/protocol/messages_generated.h>
#include <forebay/reader.h>
#include <forebay/writer.h>

namespace forebay::protocol {

template <class Table, class Record>
Table to_wire(const Record& record);
template <class Record, class Table>
Result<Record> from_wire(const Table& table);

/// How a field's value becomes that of the field of the same name: the same type, or enumerators and their numbers.
template <class To, class From>
Result<void> assign(To& to, const From& from) {
  if constexpr (std::is_enum_v<To> || std::is_enum_v<From>) {
    to = static_cast<To>(from);
  } else {
    static_assert(std::is_same_v<To, From>);
    to = from;
  }
  return {};
}

/// Retention rules travel as text; an empty text says nothing of them.
inline Result<void> assign(std::string& to, const Retention& from) {
  to = to_string(from);
  return {};
}
inline Result<void> assign(std::string& to, const std::optional<Retention>& from) {
  to = from ? to_string(*from) : std::string();
  return {};
}
inline Result<void> assign(Retention& to, const std::string& from) {
  if (from.empty()) return {};
  auto retention = parse_retention(from);
  if (!retention) return fail(std::move(retention.error()));
  to = std::move(*retention);
  return {};
}

template <class Table, class Record>
Result<void> assign(std::vector<std::unique_ptr<Table>>& to, const std::vector<Record>& from) {
  for (const Record& record : from) to.push_back(std::make_unique<Table>(to_wire<Table>(record)));
  return {};
}
template <class Record, class Table>
Result<void> assign(std::vector<Record>& to, const std::vector<std::unique_ptr<Table>>& from) {
  for (const auto& table : from) {
    auto record = from_wire<Record>(*table);
    if (!record) return fail(std::move(record.error()));
    to.push_back(std::move(*record));
  }
  return {};
}

/// `Table` is of flatc's object API.
template <class Table, class Record>
Table to_wire(const Record& record) {
  Table table;
  Record::each_field(
      [](const char*, const auto& from, auto& to) {
        // Only what comes from the wire may be malformed.
        [[maybe_unused]] const Result<void> assigned = assign(to, from);
        assert(assigned);
      },
      record, table);
  return table;
}

template <class Record, class Table>
Result<Record> from_wire(const Table& table) {
  Record record;
  Result<void> assigned;
  Record::each_field(
      [&](const char*, auto& to, const auto& from) {
        if (assigned) assigned = assign(to, from);
      },
      record, table);
  if (!assigned) return fail(std::move(assigned.error()));
  return record;
}

/// The records in a vector of tables inside a message; none where the vector is absent.
template <class Record, class Vector>
Result<std::vector<Record>> records_of(const Vector* tables) {
  std::vector<Record> records;
  if (tables == nullptr) return records;
  for (const auto* table : *tables) {
    const std::unique_ptr<typename std::remove_cvref_t<decltype(*table)>::NativeTableType> unpacked(table->UnPack());
    auto record = from_wire<Record>(*unpacked);
    if (!record) return fail(std::move(record.error()));
    records.push_back(std::move(*record));
  }
  return records;
}

/// A struct of fixed size on the wire, which comes with every step.
wire::StepSummary to_wire(const StepSummary& summary);
StepSummary from_wire(const wire::StepSummary& summary);

}  // namespace forebay::protocol
