// SPDX-License-Identifier: Apache-2.0
#include "stream_name.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace forebay::engine {
namespace {

constexpr std::size_t name_bytes_max = 64;
constexpr std::array<std::string_view, 5> suffixes = {".bp", ".bp4", ".bp5", ".sst", ".h5"};
constexpr std::string_view name_placeholder = "{name}", path_placeholder = "{path}";

bool is_letter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool is_allowed(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

// The parts between slashes, but for empty ones and ".".
std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = std::min(path.find('/'), path.size());
    const std::string_view part = path.substr(0, slash);
    if (!part.empty() && part != ".") parts.push_back(part);
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return parts;
}

std::string_view without_suffix(std::string_view part) {
  for (const std::string_view suffix : suffixes) {
    if (part.size() > suffix.size() && part.ends_with(suffix)) return part.substr(0, part.size() - suffix.size());
  }
  return part;
}

// FNV-1a. The names of streams must not change from build to build.
std::uint32_t hash_of(std::string_view text) {
  std::uint32_t hash = 2'166'136'261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return hash;
}

std::string to_stream_name(const std::string& text) {
  std::string name = text;
  std::ranges::replace_if(name, [](char c) { return !is_allowed(c); }, '_');
  if (name.empty() || !is_letter(name.front())) name.insert(name.begin(), 's');
  if (name == "files") name += '_';
  if (name.size() <= name_bytes_max) return name;
  std::array<char, 10> digits{};
  std::snprintf(digits.data(), digits.size(), "_%08x", hash_of(text));
  return name.substr(0, name_bytes_max - 9) + digits.data();
}

void replace_all(std::string& text, std::string_view from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

}  // namespace

std::string stream_name_of(std::string_view opened_name) {
  const auto parts = parts_of(opened_name);
  return to_stream_name(parts.empty() ? std::string() : std::string(without_suffix(parts.back())));
}

std::string stream_path_of(std::string_view opened_name) {
  auto parts = parts_of(opened_name);
  if (!parts.empty()) parts.back() = without_suffix(parts.back());
  std::string joined;
  for (const std::string_view part : parts) joined += (joined.empty() ? "" : "__") + std::string(part);
  return to_stream_name(joined);
}

bool has_path_placeholder(std::string_view address) {
  return address.find(path_placeholder) != std::string_view::npos;
}

bool has_placeholder(std::string_view address) {
  return address.find(name_placeholder) != std::string_view::npos || has_path_placeholder(address);
}

std::string plain_path(std::string_view opened_name) {
  std::string path;
  for (const std::string_view part : parts_of(opened_name)) {
    if (!path.empty() || opened_name.starts_with('/')) path += '/';
    path += part;
  }
  return path;
}

std::string fill_placeholders(std::string address, std::string_view opened_name) {
  replace_all(address, name_placeholder, stream_name_of(opened_name));
  replace_all(address, path_placeholder, stream_path_of(opened_name));
  return address;
}

}  // namespace forebay::engine
