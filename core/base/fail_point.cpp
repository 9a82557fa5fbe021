// SPDX-License-Identifier: Apache-2.0
#include "base/fail_point.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace forebay::internal {
namespace {

struct Armed {
  std::string name;
  unsigned long count = 1;
  std::string action;
};

Armed parse(const char* text) {
  Armed armed;
  if (text == nullptr) return armed;
  const std::string all = text;
  const auto equals = all.find('=');
  std::string place = all.substr(0, equals);
  armed.action = equals == std::string::npos ? "kill" : all.substr(equals + 1);
  if (const auto colon = place.find(':'); colon != std::string::npos) {
    armed.count = std::strtoul(place.c_str() + colon + 1, nullptr, 10);
    place.resize(colon);
  }
  armed.name = place;
  return armed;
}

const Armed& armed() {
  static const Armed value = parse(std::getenv("FOREBAY_FAIL_POINT"));
  return value;
}

}  // namespace

const bool fail_points_armed = std::getenv("FOREBAY_FAIL_POINT") != nullptr;

void pass_fail_point(const char* name) {
  static std::atomic<unsigned long> passed{0};
  if (armed().name != name || passed.fetch_add(1) + 1 != armed().count) return;
  if (armed().action == "stop") {
    ::raise(SIGSTOP);
  } else if (armed().action == "exit") {
    ::_exit(99);
  } else {
    ::kill(::getpid(), SIGKILL);
  }
}

}  // namespace forebay::internal
