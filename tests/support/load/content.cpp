// SPDX-License-Identifier: Apache-2.0
#include "content.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace forebay::load {
namespace {

/// splitmix64: spreads every bit of what goes in over all of what comes out.
std::uint64_t mixed(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31U);
}

std::uint64_t seed_of(const BlockKey& key) {
  std::uint64_t seed = 0;
  for (const char character : key.stream) seed = mixed(seed ^ static_cast<unsigned char>(character));
  for (const std::uint64_t part : {std::uint64_t{key.epoch}, std::uint64_t{key.incarnation}, key.step,
                                   std::uint64_t{key.rank}, std::uint64_t{key.variable}}) {
    seed = mixed(seed ^ part);
  }
  return seed;
}

// Elements differ from one another, and no two blocks share a run.
constexpr std::uint64_t stride = 0xd1342543de82ef95U;

BlockSpec single(std::string_view name, ShapeKind kind) {
  BlockSpec spec;
  spec.name = name;
  spec.type = DataType::uint64;
  spec.kind = kind;
  return spec;
}

std::string place(std::uint64_t step, std::uint32_t rank, std::uint32_t variable) {
  return fmt::format("step {}, rank {}, variable {}", step, rank, variable);
}

/// The number behind the 'v' of a variable's name, or nothing for other variables.
std::optional<std::uint32_t> number_of(const std::string& name) {
  if (name.size() < 2 || name[0] != 'v' || name.find_first_not_of("0123456789", 1) != std::string::npos)
    return std::nullopt;
  return static_cast<std::uint32_t>(std::stoul(name.substr(1)));
}

/// A single value of the step; 0, which none of them is but the first step's number, where it is not there.
std::uint64_t value_of(const Step& step, std::string_view name) {
  const VariableInfo* variable = step.find(name);
  std::uint64_t value = 0;
  if (variable != nullptr && !step.read_value(*variable, 0, &value)) value = 0;
  return value;
}

void check_values(const Step& step, std::vector<std::string>& wrong) {
  if (step.find("step") == nullptr || value_of(step, "step") != step.number())
    wrong.push_back(fmt::format("step {}: its number reads as {}", step.number(), value_of(step, "step")));
  if (step.find("epoch") == nullptr || value_of(step, "epoch") != step.epoch())
    wrong.push_back(
        fmt::format("step {} of epoch {}: written in epoch {}", step.number(), step.epoch(), value_of(step, "epoch")));
  const auto is_program = [](const Attribute& attribute) { return attribute.name == "program"; };
  if (std::ranges::none_of(step.attributes(), is_program))
    wrong.push_back(fmt::format("step {}: its attribute is lost", step.number()));
  std::uint64_t value = 0;
  const VariableInfo* writers = step.find("incarnation");
  if (writers == nullptr) {
    wrong.push_back(fmt::format("step {}: no local value of the ranks' incarnations", step.number()));
    return;
  }
  if (writers->blocks.size() != value_of(step, "ranks")) {
    wrong.push_back(fmt::format("step {}: {} of {} ranks are in it", step.number(), writers->blocks.size(),
                                value_of(step, "ranks")));
  }
  for (std::size_t block = 0; block < writers->blocks.size(); ++block) {
    if (!step.read_value(*writers, block, &value) || value != step.summary().incarnation) {
      wrong.push_back(fmt::format("step {} of incarnation {}: rank {} wrote as incarnation {}", step.number(),
                                  step.summary().incarnation, writers->blocks[block].rank, value));
    }
  }
}

void check_array(const Step& step, std::string_view stream, const VariableInfo& variable, std::uint32_t number,
                 Losses losses, StepFindings& found) {
  const std::uint64_t ranks = variable.shape.empty() ? 0 : variable.shape[0];
  const bool whole = ranks == value_of(step, "ranks") && variable.blocks.size() == ranks;
  if (variable.shape.size() != 2 || !whole || variable.shape[1] != value_of(step, "elements")) {
    found.wrong.push_back(fmt::format("step {}, variable {}: {} blocks, shape {}, of {} ranks with {} elements",
                                      step.number(), number, variable.blocks.size(), fmt::join(variable.shape, " x "),
                                      value_of(step, "ranks"), value_of(step, "elements")));
    return;
  }
  std::vector<std::uint64_t> elements(variable.shape[1]);
  for (std::size_t block = 0; block < variable.blocks.size(); ++block) {
    const std::uint32_t rank = variable.blocks[block].rank;
    const Box box{{0, 0}, {1, variable.shape[1]}};
    if (auto read = step.read_block(variable, block, box, elements.data()); !read) {
      // Whatever a read without a pin brought is excused only where it says so itself.
      if (!step.pinned() && read.error().code == ErrorCode::step_gone) {
        found.gone = read.error().message();
      } else if (read.error().code == ErrorCode::step_gone && losses == Losses::happen) {
        found.gone = read.error().message();
      } else if (read.error().code == ErrorCode::unavailable) {
        found.unavailable = read.error().message();
      } else {
        found.wrong.push_back(place(step.number(), rank, number) + ": " + read.error().message());
      }
      continue;
    }
    const BlockKey key{stream, step.epoch(), step.summary().incarnation, step.number(), rank, number};
    const std::size_t index = first_difference(key, elements);
    if (index < elements.size())
      found.wrong.push_back(
          fmt::format("{}: element {} of {} is wrong", place(step.number(), rank, number), index, elements.size()));
  }
}

}  // namespace

std::uint64_t Shape::elements_of(std::uint64_t step) const {
  return varying ? 1 + mixed(step) % elements : elements;
}

void fill(const BlockKey& key, std::span<std::uint64_t> elements) {
  std::uint64_t value = seed_of(key);
  for (std::uint64_t& element : elements) element = value += stride;
}

std::size_t first_difference(const BlockKey& key, std::span<const std::uint64_t> elements) {
  std::uint64_t value = seed_of(key);
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (elements[i] != (value += stride)) return i;
  }
  return elements.size();
}

std::string variable_name(std::uint32_t variable) {
  return fmt::format("v{}", variable);
}

Result<void> put_part(Writer& writer, const Shape& shape, std::uint32_t rank, std::vector<std::uint64_t>& buffer) {
  const std::uint64_t step = writer.current_step();
  const std::uint64_t incarnation = writer.incarnation();
  if (rank == 0) {
    const std::uint64_t epoch = writer.epoch();
    const std::uint64_t ranks = shape.ranks;
    const std::uint64_t variables = shape.variables;
    const std::uint64_t elements = shape.elements_of(step);
    for (const auto& [name, value] : {std::pair("step", &step), std::pair("epoch", &epoch), std::pair("ranks", &ranks),
                                      std::pair("variables", &variables), std::pair("elements", &elements)}) {
      if (auto put = writer.put(single(name, ShapeKind::global_value), value); !put) return put;
    }
    AttributeValue program;
    program.type = DataType::string;
    program.strings = {"forebay_load"};
    if (auto set = writer.set_attribute("program", std::move(program)); !set) return set;
  }
  if (auto put = writer.put(single("incarnation", ShapeKind::local_value), &incarnation); !put) return put;
  buffer.resize(shape.elements_of(step));
  const std::uint64_t extents[2] = {shape.ranks, buffer.size()};
  const std::uint64_t start[2] = {rank, 0};
  const std::uint64_t count[2] = {1, buffer.size()};
  for (std::uint32_t variable = 0; variable < shape.variables; ++variable) {
    fill({writer.address().stream, writer.epoch(), writer.incarnation(), step, rank, variable}, buffer);
    const std::string name = variable_name(variable);
    BlockSpec spec = single(name, ShapeKind::global_array);
    spec.shape = extents;
    spec.start = start;
    spec.count = count;
    if (auto put = writer.put(spec, buffer.data()); !put) return put;
  }
  return {};
}

StepFindings check_step(const Step& step, std::string_view stream, Losses losses) {
  StepFindings found;
  check_values(step, found.wrong);
  std::size_t arrays = 0;
  for (const VariableInfo& variable : step.variables()) {
    const auto number = number_of(variable.name);
    if (!number) continue;
    ++arrays;
    check_array(step, stream, variable, *number, losses, found);
  }
  if (arrays == 0 || arrays != value_of(step, "variables")) {
    found.wrong.push_back(fmt::format("step {}: {} arrays of {}", step.number(), arrays, value_of(step, "variables")));
  }
  return found;
}

Result<std::vector<HeldView>> hold_views(const Step& step) {
  std::vector<HeldView> held;
  for (const VariableInfo& variable : step.variables()) {
    const auto number = number_of(variable.name);
    if (!number) continue;
    for (std::size_t block = 0; block < variable.blocks.size(); ++block) {
      auto view = step.view_block(variable, block, {{0, 0}, {1, variable.shape[1]}});
      if (!view && view.error().code == ErrorCode::unsupported) continue;  // the block lies in several pieces
      if (!view) return fail(std::move(view.error()));
      held.push_back({step.number(), step.epoch(), step.summary().incarnation, variable.blocks[block].rank, *number,
                      std::move(*view), variable.shape[1]});
    }
  }
  return held;
}

std::vector<std::string> check_views(const std::vector<HeldView>& views, std::string_view stream) {
  std::vector<std::string> wrong;
  for (const HeldView& held : views) {
    const std::span elements(reinterpret_cast<const std::uint64_t*>(held.view.data), held.elements);
    const std::size_t index =
        first_difference({stream, held.epoch, held.incarnation, held.step, held.rank, held.variable}, elements);
    if (index < held.elements)
      wrong.push_back(
          fmt::format("view of {}: element {} changed under it", place(held.step, held.rank, held.variable), index));
  }
  return wrong;
}

}  // namespace forebay::load
