// SPDX-License-Identifier: Apache-2.0
// Writes ten steps to a stream and reads them back as a named consumer, with Forebay's C++ API alone:
// cpp_client RES/STREAM
#include <cstdint>
#include <iostream>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

#include <forebay/reader.h>
#include <forebay/writer.h>

// Calls that can fail return forebay::Result, which is tl::expected: a value or an error.
template <class T>
T checked(forebay::Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

void write(const forebay::Address& stream) {
  auto writer = checked(forebay::Writer::open(stream, {}));
  std::vector<double> values(1000);
  const std::uint64_t shape[] = {values.size()}, start[] = {0};
  forebay::BlockSpec block;
  block.name = "T";
  block.shape = block.count = shape;
  block.start = start;
  for (int number = 0; number < 10; ++number) {
    values.assign(values.size(), number);
    checked(writer->begin_step());
    checked(writer->put(block, values.data()));
    checked(writer->end_step());  // committed: readers see it, and it survives the death of any process
  }
  checked(writer->close());  // the stream has ended; without this call it counts as interrupted
}

void read(const forebay::Address& stream) {
  forebay::ReaderOptions options;
  options.consumer = "analysis";
  auto reader = checked(forebay::Reader::open(stream, options));
  for (;;) {
    const forebay::NextStep next = checked(reader->next(-1));  // waits
    if (next.kind == forebay::NextStep::Kind::end_of_stream) return;
    if (next.kind != forebay::NextStep::Kind::step) continue;  // the writer was lost, or is back
    const forebay::VariableInfo* variable = next.step->find("T");
    if (variable == nullptr) throw std::runtime_error("a step without T");
    std::vector<double> values(variable->shape.at(0));
    checked(next.step->read(*variable, {{0}, variable->shape}, values.data()));
    std::cout << "step " << next.step->number() << ": " << values.front() << '\n';
    checked(reader->acknowledge(*next.step));  // whoever opens as "analysis" next continues after it
  }
}

int main(int argc, char** argv) {
  try {
    const auto stream = checked(forebay::parse_address(argc == 2 ? argv[1] : "run1/flow"));
    write(stream);
    read(stream);
  } catch (const std::exception& failure) {
    std::cerr << "cpp_client: " << failure.what() << '\n';
    return 1;
  }
}
