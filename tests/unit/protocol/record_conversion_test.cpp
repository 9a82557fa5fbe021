// SPDX-License-Identifier: Apache-2.0
#include "protocol/record_conversion.h"

#include <gtest/gtest.h>

#include "protocol/message.h"

namespace forebay::protocol {
namespace {

/// A value that no field has by default, another one for each call.
class Values {
 public:
  template <class Field>
  void give(Field& field) {
    ++count_;
    if constexpr (std::is_same_v<Field, bool>) {
      field = true;
    } else {
      // Enumerators have few valid values, but the wire carries any.
      field = static_cast<Field>(count_);
    }
  }
  void give(std::string& field) { field = "text " + std::to_string(++count_); }
  void give(Retention& field) { field.last = ++count_; }
  template <class Value>
  void give(std::optional<Value>& field) {
    give(field.emplace());
  }
  void give(std::vector<std::string>& texts) {
    for (int i = 0; i < 2; ++i) give(texts.emplace_back());
  }
  template <class Record>
  void give(std::vector<Record>& records) {
    for (int i = 0; i < 2; ++i) fill(records.emplace_back());
  }
  template <class Record>
  void fill(Record& record) {
    Record::each_field([this](const char*, auto& field) { give(field); }, record);
  }

 private:
  std::uint8_t count_ = 0;
};

template <class Record>
void expect_equal(const Record& left, const Record& right);

struct Compare {
  template <class Field>
  void operator()(const char* name, const Field& left, const Field& right) const {
    EXPECT_TRUE(left == right) << name;
  }
  void operator()(const char* name, const std::vector<ConsumerInfo>& left,
                  const std::vector<ConsumerInfo>& right) const {
    ASSERT_EQ(left.size(), right.size()) << name;
    for (std::size_t i = 0; i < left.size(); ++i) expect_equal(left[i], right[i]);
  }
};

template <class Record>
void expect_equal(const Record& left, const Record& right) {
  Record::each_field(Compare{}, left, right);
}

template <class Table, class Record>
void expect_carried() {
  Record record;
  Values().fill(record);
  const auto packed = pack(to_wire<typename Table::NativeTableType>(record));
  const std::unique_ptr<typename Table::NativeTableType> table(flatbuffers::GetRoot<Table>(packed.data())->UnPack());
  const auto back = from_wire<Record>(*table);
  ASSERT_TRUE(back);
  expect_equal(record, *back);
}

TEST(RecordConversion, every_field_is_carried_to_the_wire_and_back) {
  expect_carried<wire::Stream, StreamInfo>();
  expect_carried<wire::AwaitedStream, AwaitedStream>();
  expect_carried<wire::Reservation, ReservationInfo>();
  expect_carried<wire::ReservationCreate, ReservationSpec>();
  expect_carried<wire::ServerAnswer, ServerInfo>();
  expect_carried<wire::Finding, Finding>();

  StepSummary summary;
  Values().fill(summary);
  expect_equal(summary, from_wire(to_wire(summary)));
}

TEST(RecordConversion, retention_that_cannot_be_read_is_an_error) {
  wire::StreamT table;
  table.retention = "some";
  const auto info = from_wire<StreamInfo>(table);
  ASSERT_FALSE(info);
  EXPECT_EQ(info.error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace forebay::protocol
