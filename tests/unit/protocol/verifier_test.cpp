// SPDX-License-Identifier: Apache-2.0
// What a buffer refers to again and again is refused: unpacked, it would take as much as the references say.
#include "base/verifier.h"

#include <gtest/gtest.h>

#include "protocol/message.h"
#include "protocol/step_metadata.h"
#include "protocol/unpacked.h"

namespace forebay::protocol {
namespace {

using flatbuffers::Offset;
using flatbuffers::String;

Message message_of(MessageType type, const flatbuffers::FlatBufferBuilder& builder) {
  const auto bytes = std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()));
  return {type, 1, {bytes.begin(), bytes.end()}, {}};
}

TEST(Verifier, takes_texts_that_are_each_their_own) {
  wire::WriterOpenT asked;
  asked.reservation = asked.stream = "flow";
  for (int i = 0; i < 1000; ++i) asked.gone.push_back("the same process");
  const auto packed = pack(asked);
  const auto bytes = std::as_bytes(std::span(packed.data(), packed.size()));
  const Message message{MessageType::writer_open, 1, {bytes.begin(), bytes.end()}, {}};
  const auto unpacked = protocol::unpacked<wire::WriterOpen>(message);
  ASSERT_TRUE(unpacked) << unpacked.error().message();
  EXPECT_EQ((*unpacked)->gone, asked.gone);
}

TEST(Verifier, refuses_a_text_that_a_list_names_many_times) {
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<Offset<String>> texts(100, builder.CreateString(std::string(1000, 'x')));
  const auto list = builder.CreateVector(texts);
  wire::WriterOpenBuilder open(builder);
  open.add_gone(list);
  builder.Finish(open.Finish());
  EXPECT_FALSE(body_of<wire::WriterOpen>(message_of(MessageType::writer_open, builder)));
}

TEST(Verifier, refuses_a_text_that_many_tables_name) {
  flatbuffers::FlatBufferBuilder builder;
  const auto name = builder.CreateString(std::string(1000, 'x'));
  std::vector<Offset<wire::HomeEntry>> entries;
  for (int i = 0; i < 100; ++i) entries.push_back(wire::CreateHomeEntry(builder, name));
  const auto homes = builder.CreateVector(entries);
  builder.Finish(wire::CreatePoolDirectory(builder, 0, homes));
  EXPECT_FALSE(body_of<wire::PoolDirectory>(message_of(MessageType::pool_directory, builder)));
}

TEST(Verifier, refuses_a_table_that_a_list_names_many_times) {
  flatbuffers::FlatBufferBuilder builder;
  const auto entry = wire::CreateHomeEntry(builder, builder.CreateString("x"));
  const auto homes = builder.CreateVector(std::vector<Offset<wire::HomeEntry>>(100, entry));
  builder.Finish(wire::CreatePoolDirectory(builder, 0, homes));
  EXPECT_FALSE(body_of<wire::PoolDirectory>(message_of(MessageType::pool_directory, builder)));
}

TEST(Verifier, refuses_attributes_of_a_step_that_name_one_text_many_times) {
  flatbuffers::FlatBufferBuilder builder;
  const std::vector<Offset<String>> texts(100, builder.CreateString(std::string(1000, 'x')));
  const auto name = builder.CreateString("a");
  const auto attribute = format::CreateAttribute(builder, name, static_cast<std::uint8_t>(DataType::string), true, 0,
                                                 builder.CreateVector(texts));
  builder.Finish(format::CreateAttributeTable(builder, builder.CreateVector(std::vector{attribute})));
  const Message table = message_of(MessageType::none, builder);
  EXPECT_FALSE(decode_attributes(table.body));
}

}  // namespace
}  // namespace forebay::protocol
