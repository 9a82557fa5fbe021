// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/client/numbered_content.h"

#include <algorithm>
#include <span>
#include <vector>

namespace forebay::testing {
namespace {

constexpr std::uint64_t small_elements = 10;
constexpr std::uint64_t elements_max = 9000;

double value_of(std::uint64_t content, std::uint64_t i) {
  return static_cast<double>(content) * 1e6 + static_cast<double>(i);
}
std::string name_of(std::uint64_t content) {
  return "the step of number " + std::to_string(content);
}

/// The same for eight steps, small and then large in turn: large ones are written once, as a set.
AttributeValue attribute_of(std::uint64_t content) {
  const std::uint64_t turn = content / 8;
  AttributeValue value;
  value.strings = {name_of(turn) + std::string(turn % 2 == 0 ? 6000 : 0, ' ')};
  return value;
}

tl::unexpected<Error> differs(const std::string& what) {
  return fail(ErrorCode::corrupt, what + " is not what was written");
}

Result<const VariableInfo*> variable(const Step& step, const char* name, ShapeKind kind, DataType type) {
  const VariableInfo* found = step.find(name);
  if (found == nullptr || found->kind != kind || found->type != type || found->blocks.empty()) return differs(name);
  return found;
}

Result<std::vector<double>> array(const Step& step, const char* name, std::uint64_t elements) {
  auto found = variable(step, name, ShapeKind::global_array, DataType::float64);
  if (!found) return fail(std::move(found.error()));
  if ((*found)->shape != Dimensions{elements}) return differs(name);
  std::vector<double> values(elements);
  if (auto read = step.read(**found, {{0}, {elements}}, values.data()); !read) return fail(std::move(read.error()));
  return values;
}

Result<void> check_array(const Step& step, const char* name, std::uint64_t elements, std::uint64_t content) {
  auto values = array(step, name, elements);
  if (!values) return fail(std::move(values.error()));
  for (std::uint64_t i = 0; i < elements; ++i) {
    if ((*values)[i] != value_of(content, i)) return differs(std::string(name) + "[" + std::to_string(i) + "]");
  }
  return {};
}

}  // namespace

std::uint64_t elements_of(std::uint64_t content) {
  return 1 + content * 7919 % elements_max;
}

Result<void> put_content(Writer& writer, std::uint64_t content, const Putting& putting) {
  const auto put_bytes = [&](const BlockSpec& block, std::span<const std::byte> bytes) -> Result<void> {
    if (!putting.in_place) return writer.put(block, bytes.data());
    auto memory = writer.allocate(block);
    if (!memory) return fail(std::move(memory.error()));
    std::ranges::copy(bytes, memory->bytes.begin());
    return {};
  };
  const auto put_array = [&](const char* name, std::uint64_t elements, std::uint64_t first, std::uint64_t end) {
    std::vector<double> values(end - first);
    for (std::uint64_t i = first; i < end; ++i) values[i - first] = value_of(content, i);
    const Dimensions shape{elements};
    const Dimensions start{first};
    const Dimensions count{end - first};
    const BlockSpec block{name, DataType::float64, ShapeKind::global_array, shape, start, count, {}, {}};
    const bool large = elements > small_elements;
    return large ? put_bytes(block, std::as_bytes(std::span(values))) : writer.put(block, values.data());
  };
  if (auto set = writer.set_attribute("title", attribute_of(content)); !set) return set;
  const std::uint64_t elements = elements_of(content);
  const std::uint64_t first = elements * putting.rank / putting.ranks;
  const std::uint64_t end = elements * (putting.rank + 1) / putting.ranks;
  if (auto put = put_array("T", elements, first, end); !put) return put;
  if (putting.rank > 0) return {};
  if (putting.ballast_bytes > 0) {
    const std::vector<std::byte> ballast(putting.ballast_bytes, static_cast<std::byte>(content));
    const Dimensions shape{putting.ballast_bytes};
    const Dimensions zeros{0};
    if (auto put =
            put_bytes({"ballast", DataType::uint8, ShapeKind::global_array, shape, zeros, shape, {}, {}}, ballast);
        !put)
      return put;
  }
  if (auto put = put_array("edge", small_elements, 0, small_elements); !put) return put;
  if (auto put = writer.put({"content", DataType::uint64, ShapeKind::global_value, {}, {}, {}, {}, {}}, &content); !put)
    return put;
  return writer.put_string("name", ShapeKind::global_value, name_of(content));
}

Result<std::uint64_t> content_of(const Step& step) {
  auto number = variable(step, "content", ShapeKind::global_value, DataType::uint64);
  if (!number) return fail(std::move(number.error()));
  std::uint64_t content = 0;
  if (auto read = step.read_value(**number, 0, &content); !read) return fail(std::move(read.error()));
  auto name = variable(step, "name", ShapeKind::global_value, DataType::string);
  if (!name) return fail(std::move(name.error()));
  auto text = step.read_string(**name, 0);
  if (!text) return fail(std::move(text.error()));
  if (*text != name_of(content)) return differs("name");
  if (auto checked = check_array(step, "T", elements_of(content), content); !checked) return fail(checked.error());
  if (auto checked = check_array(step, "edge", small_elements, content); !checked) return fail(checked.error());
  const std::size_t variables = step.find("ballast") == nullptr ? 4 : 5;
  if (step.variables().size() != variables || step.attributes().size() != 1) return differs("the list of variables");
  const Attribute& title = step.attributes().front();
  if (title.name != "title" || title.value != attribute_of(content)) return differs("attribute title");
  return content;
}

}  // namespace forebay::testing
