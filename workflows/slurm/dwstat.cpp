// SPDX-License-Identifier: Apache-2.0
// dwstat: the tables of pools, sessions, instances and so on, in the columns that scripts pick by number. Any user may
// run it, also as `scontrol show bbstat …`, where Slurm passes their arguments on: it opens one file, for reading.
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "snapshot_file.h"

namespace {

constexpr const char* tables[] = {"pools",         "sessions",    "instances", "configurations",
                                  "registrations", "activations", "fragments", "nodes"};
constexpr const char* usage =
    "usage: dwstat [TABLE...]\n"
    "tables: pools (without an argument), sessions, instances, configurations, registrations, activations, fragments,\n"
    "nodes; most: the first six; all\n"
    "example: dwstat sessions\n";

/// The tables that a word stands for; none if it is not known.
std::vector<std::string_view> tables_of(std::string_view word) {
  if (word == "most") return {tables, tables + 6};
  if (word == "all") return {std::begin(tables), std::end(tables)};
  for (const std::string_view table : tables) {
    if (word == table) return {table};
  }
  return {};
}

int fail(const std::string& text) {
  std::fputs(("dwstat: " + text + "\n").c_str(), stderr);
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string_view> wanted;
  for (int at = 1; at < argc; ++at) {
    if (std::strcmp(argv[at], "--help") == 0 || std::strcmp(argv[at], "-h") == 0) {
      std::fputs(usage, stdout);
      return 0;
    }
    const auto named = tables_of(argv[at]);
    // What a stranger wrote is not repeated.
    if (named.empty()) return fail(std::string("there is no such table\n") + usage);
    wanted.insert(wanted.end(), named.begin(), named.end());
    if (wanted.size() > 64) return fail("too many tables");
  }
  if (wanted.empty()) wanted.emplace_back(tables[0]);
  std::string problem;
  const auto root = forebay::slurm::instance_root(problem);
  if (!root) return fail(problem);
  const forebay::slurm::Snapshot snapshot(*root + "/slurm/dwstat");
  if (!snapshot.is_whole())
    return fail("there is no whole " + *root + "/slurm/dwstat; an administrator starts the manager with `forebay up`");
  bool first = true;
  for (const std::string_view table : wanted) {
    const auto lines = snapshot.section(table);
    if (!lines) return fail("the manager knows no table " + std::string(table));
    if (!first) std::fputc('\n', stdout);
    std::fwrite(lines->data(), 1, lines->size(), stdout);
    first = false;
  }
  return std::fflush(stdout) == 0 ? 0 : 1;
}
