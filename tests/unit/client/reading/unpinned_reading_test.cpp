// SPDX-License-Identifier: Apache-2.0
// Reading a step without a pin, while the writer drops it and writes its space again.
#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "client/segments/client_device.h"
#include "tests/unit/client/stream_fixture.h"

namespace forebay::testing {
namespace {

/// Before one of the reads through it, something else happens.
class Interposed final : public Device {
 public:
  using Hook = std::function<void(const File& file, std::uint64_t offset, std::size_t bytes)>;

  /// Before the n-th read from now on (from 1), and only then.
  void before_read(int n, Hook hook) {
    reads_left_ = n;
    hook_ = std::move(hook);
  }
  bool has_happened() const { return !hook_; }

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override {
    return posix_device().open(path, mode);
  }
  std::unique_ptr<File> adopt(Descriptor descriptor) override {
    return std::make_unique<InterposedFile>(*this, posix_device().adopt(std::move(descriptor)));
  }
  Result<void> rename(const std::string& from, const std::string& to) override {
    return posix_device().rename(from, to);
  }
  Result<void> remove(const std::string& path) override { return posix_device().remove(path); }
  Result<void> make_directory(const std::string& path, unsigned mode) override {
    return posix_device().make_directory(path, mode);
  }
  Result<std::vector<std::string>> list(const std::string& path) const override { return posix_device().list(path); }
  Result<void> sync_directory(const std::string& path) override { return posix_device().sync_directory(path); }

 private:
  class InterposedFile final : public File {
   public:
    InterposedFile(Interposed& owner, std::unique_ptr<File> file) : owner_(owner), file_(std::move(file)) {}
    Result<void> read_at(std::uint64_t offset, std::span<std::byte> bytes) const override {
      if (owner_.hook_ && --owner_.reads_left_ == 0) {
        std::exchange(owner_.hook_, nullptr)(*file_, offset, bytes.size());
      }
      return file_->read_at(offset, bytes);
    }
    Result<void> write_at(std::uint64_t offset, std::span<const std::byte> bytes) override {
      return file_->write_at(offset, bytes);
    }
    Result<void> allocate(std::uint64_t size) override { return file_->allocate(size); }
    Result<void> free_space(std::uint64_t offset, std::uint64_t length) override {
      return file_->free_space(offset, length);
    }
    Result<void> sync() override { return file_->sync(); }
    Result<std::uint64_t> size() const override { return file_->size(); }
    int descriptor() const noexcept override { return file_->descriptor(); }

   private:
    Interposed& owner_;
    std::unique_ptr<File> file_;
  };

  int reads_left_ = 0;
  Hook hook_;
};

/// How the step goes.
enum class Going { dropped, replaced };

class UnpinnedReading : public StreamTest, public ::testing::WithParamInterface<std::tuple<Going, Verify>> {
 protected:
  // A step is larger than what unnamed readers may pin of it, and there is room for three.
  static constexpr std::uint64_t elements = 9 * mib / sizeof(double);
  std::uint64_t capacity() const override { return 32 * mib; }

  void SetUp() override {
    StreamTest::SetUp();
    WriterOptions options;
    if (going() == Going::dropped) options.retention = Retention{.last = 1, .consumers = {}, .precious_every = 0};
    writer_ = open_writer(options);
    write_next();
    client::set_client_device(device_);
    ReaderOptions reading;
    reading.verify = std::get<Verify>(GetParam());
    reader_ = open_reader(reading);
    client::set_client_device(posix_device());
  }
  static Going going() { return std::get<Going>(GetParam()); }

  void write_next() { write_step(*writer_, elements, first_ += 1e9); }
  /// Until something else lies where the reader is about to look.
  void overwrite(const File& file, std::uint64_t offset, std::size_t size) {
    const auto there = [&] {
      std::vector<std::byte> bytes(size);
      EXPECT_TRUE(file.read_at(offset, bytes));
      return bytes;
    };
    const auto before = there();
    if (going() == Going::replaced) {
      // The step's number is there again, in another epoch.
      ASSERT_OK(writer_->close());
      WriterOptions options;
      options.mode = WriteMode::replace;
      writer_ = open_writer(options);
    }
    for (int steps = 0; there() == before; ++steps) {
      ASSERT_LT(steps, 10) << "the space is not written again";
      ASSERT_NO_FATAL_FAILURE(write_next());
    }
  }
  void overwrite_before_read(int n) {
    device_.before_read(
        n, [this](const File& file, std::uint64_t offset, std::size_t bytes) { overwrite(file, offset, bytes); });
  }

  Interposed device_;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<Reader> reader_;
  double first_ = 0;
};

TEST_P(UnpinnedReading, step_that_is_written_again_while_it_is_read_is_gone) {
  const std::vector<std::pair<int, bool>> cases{{1, true}, {5, false}};
  for (const auto& [read_number, nothing_read] : cases) {
    auto step = reader_->step(reader_->info()->committed.value());
    ASSERT_OK(step);
    ASSERT_FALSE((*step)->pinned());
    const VariableInfo& variable = *(*step)->find("T");
    const double oldest = first_;
    std::vector<double> values(elements, -1.0);
    overwrite_before_read(read_number);
    const auto read = (*step)->read(variable, {{0}, {elements}}, values.data());
    ASSERT_TRUE(device_.has_happened());
    // Newer bytes were read indeed, alone or behind older ones.
    EXPECT_EQ(values.front() == oldest, !nothing_read);
    EXPECT_TRUE(std::ranges::any_of(values, [&](double value) { return value >= oldest + 1e9; }));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::step_gone) << read.error().message();
  }
}

TEST_P(UnpinnedReading, step_that_is_written_again_while_it_is_verified_is_gone_not_damaged) {
  auto step = reader_->step(0);
  ASSERT_OK(step);
  ASSERT_FALSE((*step)->pinned());
  overwrite_before_read(1);
  const auto verified = (*step)->verify();
  ASSERT_TRUE(device_.has_happened());
  ASSERT_FALSE(verified);
  EXPECT_EQ(verified.error().code, ErrorCode::step_gone) << verified.error().message();
}

TEST_P(UnpinnedReading, step_whose_metadata_is_written_again_while_it_is_opened_is_gone_not_damaged) {
  overwrite_before_read(1);
  const auto step = reader_->step(0);
  ASSERT_TRUE(device_.has_happened());
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code, ErrorCode::step_gone) << step.error().message();
}

std::string unpinned_name(const ::testing::TestParamInfo<UnpinnedReading::ParamType>& info) {
  const auto [going, verify] = info.param;
  return std::string(going == Going::dropped ? "dropped" : "replaced") +
         (verify == Verify::none ? "" : "_and_verified");
}

INSTANTIATE_TEST_SUITE_P(All, UnpinnedReading,
                         ::testing::Combine(::testing::Values(Going::dropped, Going::replaced),
                                            ::testing::Values(Verify::none, Verify::read)),
                         unpinned_name);

}  // namespace
}  // namespace forebay::testing
