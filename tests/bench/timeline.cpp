// SPDX-License-Identifier: Apache-2.0
#include "timeline.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>

#include <fmt/format.h>

namespace bench {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::int64_t ns_per_second = 1'000'000'000;

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * ns_per_second + now.tv_nsec;
}

void wait_until_ns(std::int64_t moment) {
  const timespec until{moment / ns_per_second, moment % ns_per_second};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) == EINTR) continue;
}

void give_up(const std::string& why) {
  std::cerr << why << std::endl;
  // At once: destructors of a half-open engine may wait for peers.
  ::_exit(1);
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  const std::size_t whole = (bytes + huge_page_bytes - 1) / huge_page_bytes * huge_page_bytes;
  data_ = static_cast<std::byte*>(std::aligned_alloc(huge_page_bytes, whole));
  if (data_ == nullptr) give_up(fmt::format("no memory for {} bytes", bytes));
  ::madvise(data_, whole, MADV_HUGEPAGE);
  std::memset(data_, 1, bytes);
}

Buffer::~Buffer() {
  std::free(data_);
}

StepData::StepData(std::size_t variables, std::size_t variable_bytes)
    : variables_(variables), variable_bytes_(variable_bytes), buffer_(variables * variable_bytes) {
  if (variable_bytes < 2 * sizeof(double) || variable_bytes % sizeof(double) != 0)
    give_up("a variable has at least 16 bytes, and whole doubles");
  for (std::size_t i = 0; i < variables; ++i) names_.push_back(fmt::format("v{:05}", i));
  double* elements = buffer_.elements();
  for (std::size_t i = 0; i < variables * this->elements(); ++i) elements[i] = static_cast<double>(i % 8191) * 0.125;
}

void StepData::stamp(std::uint64_t step) {
  for (std::size_t i = 0; i < variables_; ++i) {
    variable(i)[0] = static_cast<double>(step);
    variable(i)[elements() - 1] = static_cast<double>(i);
  }
}

void StepData::check(std::uint64_t step) const {
  for (std::size_t i = 0; i < variables_; ++i) {
    if (variable(i)[0] == static_cast<double>(step) && variable(i)[elements() - 1] == static_cast<double>(i)) continue;
    give_up(fmt::format("variable {} of step {} has the stamps {} and {}", name(i), step, variable(i)[0],
                        variable(i)[elements() - 1]));
  }
}

void Timeline::ready() const {
  std::cout << "ready" << std::endl;
  std::string line;
  if (!std::getline(std::cin, line)) give_up("no start signal came");
}

// getrusage would tell the peak of the process that started this one, if that was higher.
static std::uint64_t peak_memory_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
  }
  give_up("there is no VmHWM in /proc/self/status");
}

void Timeline::print() const {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  std::string text =
      fmt::format(R"({{"program": "{}", "user_seconds": {}, "system_seconds": {}, "rss_max_bytes": {}, )"
                  R"("page_faults": {}, "values": {{)",
                  program_, seconds(usage.ru_utime), seconds(usage.ru_stime), peak_memory_bytes(), usage.ru_minflt);
  const char* separator = "";
  for (const auto& [name, value] : values_) {
    text += fmt::format(R"({}"{}": {})", separator, name, value);
    separator = ", ";
  }
  text += R"(}, "steps": [)";
  separator = "";
  for (const Moments& step : steps_) {
    text += fmt::format("{}[{}, {}, {}, {}]", separator, step[0], step[1], step[2], step[3]);
    separator = ", ";
  }
  std::cout << text << "]}" << std::endl;
}

}  // namespace bench
