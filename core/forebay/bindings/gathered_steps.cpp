// SPDX-License-Identifier: Apache-2.0
#include "gathered_steps.h"

#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "conversion.h"

namespace nb = nanobind;

namespace forebay::python {

namespace {

// The records of the buffers, as forebay/step_metadata.py has them.
struct SummaryRecord {
  std::uint64_t number;
  std::uint32_t epoch;
  std::uint32_t incarnation;
  std::int64_t time_ns;
  std::uint64_t size_bytes;
  std::uint32_t pins;
  std::uint8_t durable;
  std::uint8_t staged;
  std::uint8_t precious;
  std::uint8_t unused;
};
static_assert(sizeof(SummaryRecord) == 40);

struct BlockRecord {
  std::uint64_t size_bytes;
  std::uint32_t checksum;
  std::uint8_t has_checksum;
  std::uint8_t has_statistics;
  std::uint16_t unused;
  std::byte min[16];
  std::byte max[16];
};
static_assert(sizeof(BlockRecord) == 48);

template <class Record>
void append_record(std::string& buffer, const Record& record) {
  buffer.append(reinterpret_cast<const char*>(&record), sizeof record);
}

// Keys begin every part with its length, so that no two contents have the same.
void append_number(std::string& key, std::uint64_t number) {
  key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void append_text(std::string& key, std::string_view text) {
  append_number(key, text.size());
  key.append(text);
}

void append_dimensions(std::string& key, const Dimensions& dimensions) {
  append_number(key, dimensions.size());
  for (const std::uint64_t extent : dimensions) {
    append_number(key, extent);
  }
}

std::string key_of(const std::vector<VariableInfo>& variables) {
  std::string key;
  for (const VariableInfo& variable : variables) {
    append_text(key, variable.name);
    append_number(key, static_cast<std::uint64_t>(variable.type) << 8 | static_cast<std::uint64_t>(variable.kind));
    append_text(key, variable.conflict);
    append_dimensions(key, variable.shape);
    append_number(key, variable.blocks.size());
    for (const BlockInfo& block : variable.blocks) {
      append_number(key, block.rank);
      append_dimensions(key, block.start);
      append_dimensions(key, block.count);
    }
  }
  return key;
}

std::string key_of(const std::vector<Attribute>& attributes) {
  std::string key;
  for (const Attribute& attribute : attributes) {
    append_text(key, attribute.name);
    append_number(key, static_cast<std::uint64_t>(attribute.value.type) << 1 | (attribute.value.is_array ? 1U : 0U));
    append_text(key, {reinterpret_cast<const char*>(attribute.value.bytes.data()), attribute.value.bytes.size()});
    append_number(key, attribute.value.strings.size());
    for (const std::string& text : attribute.value.strings) {
      append_text(key, text);
    }
  }
  return key;
}

template <class Number>
nb::bytes bytes_of_numbers(const std::vector<Number>& numbers) {
  return nb::bytes(numbers.data(), numbers.size() * sizeof(Number));
}

nb::tuple tuple_of_layout(const std::vector<VariableInfo>& variables) {
  nb::list list;
  for (const VariableInfo& variable : variables) {
    nb::list blocks;
    for (const BlockInfo& block : variable.blocks) {
      blocks.append(nb::make_tuple(block.rank, tuple_of(block.start), tuple_of(block.count)));
    }
    list.append(nb::make_tuple(variable.name, static_cast<int>(variable.type), static_cast<int>(variable.kind),
                               tuple_of(variable.shape), nb::tuple(blocks), text_of(fault_of(variable))));
  }
  return nb::tuple(list);
}

}  // namespace

void GatheredSteps::add(const Step& step) {
  const StepSummary& summary = step.summary();
  append_record(summaries_, SummaryRecord{.number = summary.step,
                                          .epoch = summary.epoch,
                                          .incarnation = summary.incarnation,
                                          .time_ns = summary.time_ns,
                                          .size_bytes = summary.size_bytes,
                                          .pins = summary.pins,
                                          .durable = summary.durable,
                                          .staged = summary.staged,
                                          .precious = summary.precious,
                                          .unused = 0});
  const auto number_of = [](auto& numbered, const auto& content) {
    const auto next = static_cast<std::uint32_t>(numbered.all.size());
    const auto [found, is_new] = numbered.numbers.emplace(key_of(content), next);
    if (is_new) {
      numbered.all.push_back(content);
    }
    return found->second;
  };
  const auto step_number = static_cast<std::uint32_t>(layout_numbers_.size());
  layout_numbers_.push_back(number_of(layouts_, step.variables()));
  attribute_numbers_.push_back(number_of(attributes_, step.attributes()));
  value_offsets_.push_back(values_.size());
  text_offsets_.push_back(texts_.size());
  block_offsets_.push_back(blocks_.size() / sizeof(BlockRecord));
  for (const VariableInfo& variable : step.variables()) {
    add_values(step, step_number, variable);
    for (const BlockInfo& block : variable.blocks) {
      BlockRecord record{.size_bytes = block.size_bytes,
                         .checksum = block.checksum,
                         .has_checksum = block.has_checksum,
                         .has_statistics = block.has_statistics,
                         .unused = 0,
                         .min = {},
                         .max = {}};
      std::memcpy(record.min, block.min, sizeof record.min);
      std::memcpy(record.max, block.max, sizeof record.max);
      append_record(blocks_, record);
    }
  }
}

void GatheredSteps::add_values(const Step& step, std::uint32_t number, const VariableInfo& variable) {
  if (variable.kind != ShapeKind::global_value && variable.kind != ShapeKind::local_value) {
    return;
  }
  const std::size_t element = element_size(variable.type);
  for (std::size_t block = 0; block < variable.blocks.size(); ++block) {
    Result<void> read;
    if (variable.type == DataType::string) {
      auto text = step.read_string(variable, block);
      texts_.push_back(text ? std::move(*text) : std::string());
      if (!text) {
        read = fail(std::move(text.error()));
      }
    } else {
      const std::size_t offset = values_.size();
      values_.resize(offset + element);
      read = step.read_value(variable, block, values_.data() + offset);
    }
    if (!read) {
      unreadable_.emplace_back(number, variable.name, read.error().what);
    }
  }
}

nb::tuple GatheredSteps::to_python() const {
  nb::list layouts;
  for (const std::vector<VariableInfo>& variables : layouts_.all) {
    layouts.append(tuple_of_layout(variables));
  }
  nb::list attributes;
  for (const std::vector<Attribute>& set : attributes_.all) {
    attributes.append(list_of(set));
  }
  nb::list texts;
  for (const std::string& text : texts_) {
    texts.append(text_of(text));
  }
  nb::dict unreadable;
  for (const auto& [step, variable, why] : unreadable_) {
    unreadable[nb::make_tuple(step, variable)] = text_of(why);
  }
  return nb::make_tuple(nb::bytes(summaries_.data(), summaries_.size()), layouts, attributes,
                        bytes_of_numbers(layout_numbers_), bytes_of_numbers(attribute_numbers_),
                        nb::bytes(values_.data(), values_.size()), bytes_of_numbers(value_offsets_), texts,
                        bytes_of_numbers(text_offsets_), nb::bytes(blocks_.data(), blocks_.size()),
                        bytes_of_numbers(block_offsets_), unreadable);
}

}  // namespace forebay::python
