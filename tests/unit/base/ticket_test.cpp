// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <forebay/ticket.h>

#include "tests/support/temporary_directory.h"

namespace forebay {
namespace {

constexpr auto of_step = R"({"forebay": "forebay://run1/flow@17", "uuid": "c19a1af6", "epoch": 2})";

TEST(Ticket, names_a_stream_or_a_step_with_what_tells_it_from_others) {
  const auto step = parse_ticket(of_step);
  ASSERT_TRUE(step);
  EXPECT_EQ(step->address.path(), "run1/flow");
  EXPECT_EQ(step->address.step, 17U);
  EXPECT_EQ(step->uuid, "c19a1af6");
  EXPECT_EQ(step->epoch, 2U);
  const auto stream = parse_ticket("{\"forebay\":\"forebay://node7:7461/run1/flow\",\"uuid\":\"a\"}\n");
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->address.server, "node7:7461");
  EXPECT_FALSE(stream->address.step || stream->epoch);
}

TEST(Ticket, may_have_fields_of_later_versions) {
  const auto ticket = parse_ticket(
      R"({"later": "\u00e9\ud83d\ude00\"", "more": -1.5e3, "no": null, "forebay": "run1\/flow", "uuid": "a", "epoch": null})");
  ASSERT_TRUE(ticket) << ticket.error().what;
  EXPECT_EQ(ticket->address.path(), "run1/flow");
  EXPECT_FALSE(ticket->epoch);
}

TEST(Ticket, that_is_none_is_refused_with_the_place) {
  for (const std::string text :
       {"", "[1]", "{", "{}", "{\"forebay\": \"run1/flow\"}", "{\"forebay\": 1, \"uuid\": \"a\"}",
        R"({"forebay": "run1/flow", "uuid": "a"} x)", R"({"forebay": "run1/flow", "uuid": "a",})",
        R"({"forebay": "nothing", "uuid": "a"})", R"({"forebay": "run1/flow", "uuid": "a", "epoch": -1})",
        R"({"forebay": "run1/flow", "uuid": "a", "epoch": 4294967296})",
        R"({"forebay": "run1/flow", "uuid": "a", "epoch": 99999999999999999999})",
        R"({"forebay": "run1/flow", "uuid": "a", "epoch": 01})",
        R"({"forebay": "run1/flow", "uuid": "a", "uuid": "b"})", R"({"forebay": "run1/flow", "uuid": "\ud800"})",
        R"({"forebay": "run1/flow", "uuid": "\x"})", R"({"forebay": "run1/flow", "uuid": "a)",
        "{\"forebay\": \"run1/flow\", \"uuid\": \"a\nb\"}", R"({"forebay": "run1/flow", "uuid": "a", "in": {}})"}) {
    const auto ticket = parse_ticket(text, "here.forebay");
    ASSERT_FALSE(ticket) << text;
    EXPECT_EQ(ticket.error().code, ErrorCode::invalid_argument) << text;
    EXPECT_EQ(ticket.error().where, "here.forebay") << text;
    EXPECT_NE(ticket.error().what.find("no ticket of Forebay: "), std::string::npos) << text;
  }
}

TEST(Ticket, is_a_file_whose_name_ends_so) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/step.forebay";
  EXPECT_FALSE(is_ticket_path(path));
  EXPECT_EQ(read_ticket(path).error().code, ErrorCode::not_found);
  std::ofstream(path) << of_step;
  EXPECT_TRUE(is_ticket_path(path));
  EXPECT_EQ(read_ticket(path)->address.step, 17U);
  std::filesystem::create_directory(folder.path() + "/folder.forebay");
  EXPECT_FALSE(is_ticket_path(folder.path() + "/folder.forebay"));
  std::ofstream(folder.path() + "/huge.forebay") << std::string(1 << 20, ' ');
  EXPECT_FALSE(read_ticket(folder.path() + "/huge.forebay"));
}

}  // namespace
}  // namespace forebay
