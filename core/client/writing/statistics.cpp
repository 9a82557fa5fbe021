// SPDX-License-Identifier: Apache-2.0
#include "client/writing/statistics.h"

#include <cstring>
#include <limits>
#include <type_traits>

namespace forebay::client {
namespace {

// Four vectors of 32 bytes go through the elements side by side: enough to hide the latency of compare and select, and
// independent, so that the order of floating-point operations is fixed without -ffast-math.
constexpr std::size_t vector_bytes = 32;
constexpr std::size_t lanes = 4;

template <class T>
constexpr T lowest() {
  return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::lowest();
}
template <class T>
constexpr T highest() {
  return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity() : std::numeric_limits<T>::max();
}

// A comparison with NaN is false, so NaN never gets in.
template <class T>
inline __attribute__((always_inline)) void scan(const std::byte* data, std::size_t bytes, T& min, T& max) {
  std::size_t done = 0;
  if constexpr (sizeof(T) <= 8) {
    typedef T Vector __attribute__((vector_size(vector_bytes)));
    constexpr std::size_t elements = vector_bytes / sizeof(T);
    if (bytes >= lanes * vector_bytes) {
      Vector low[lanes];
      Vector high[lanes];
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        for (std::size_t i = 0; i < elements; ++i) {
          low[lane][i] = min;
          high[lane][i] = max;
        }
      }
      for (; done + lanes * vector_bytes <= bytes; done += lanes * vector_bytes) {
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          Vector value;
          std::memcpy(&value, data + done + lane * vector_bytes, vector_bytes);
          low[lane] = value < low[lane] ? value : low[lane];
          high[lane] = value > high[lane] ? value : high[lane];
        }
      }
      for (std::size_t lane = 0; lane < lanes; ++lane) {
        for (std::size_t i = 0; i < elements; ++i) {
          if (low[lane][i] < min) min = low[lane][i];
          if (high[lane][i] > max) max = high[lane][i];
        }
      }
    }
  }
  for (; done < bytes; done += sizeof(T)) {
    T value;
    std::memcpy(&value, data + done, sizeof(T));
    if (value < min) min = value;
    if (value > max) max = value;
  }
}

// Each instantiation exists twice: for every x86-64, and for those with AVX2 (checked once a chunk).
template <class T>
void scan_generic(const std::byte* data, std::size_t bytes, T& min, T& max) {
  scan<T>(data, bytes, min, max);
}

#if defined(__x86_64__)
template <class T>
__attribute__((target("avx2"))) void scan_avx2(const std::byte* data, std::size_t bytes, T& min, T& max) {
  scan<T>(data, bytes, min, max);
}
#endif

template <class T>
void scan_best(const std::byte* data, std::size_t bytes, T& min, T& max) {
#if defined(__x86_64__)
  if (bytes >= 1024 && __builtin_cpu_supports("avx2")) return scan_avx2<T>(data, bytes, min, max);
#endif
  scan_generic<T>(data, bytes, min, max);
}

template <class Visit>
void with_ordered_type(DataType type, Visit&& visit) {
  switch (type) {
    case DataType::character:
      return visit(char{});
    case DataType::int8:
      return visit(std::int8_t{});
    case DataType::int16:
      return visit(std::int16_t{});
    case DataType::int32:
      return visit(std::int32_t{});
    case DataType::int64:
      return visit(std::int64_t{});
    case DataType::uint8:
      return visit(std::uint8_t{});
    case DataType::uint16:
      return visit(std::uint16_t{});
    case DataType::uint32:
      return visit(std::uint32_t{});
    case DataType::uint64:
      return visit(std::uint64_t{});
    case DataType::float32:
      return visit(float{});
    case DataType::float64:
      return visit(double{});
    case DataType::long_double:
      return visit(0.0L);
    case DataType::complex64:
    case DataType::complex128:
    case DataType::string:
      return;
  }
}

// x87 values have 10 bytes of content; the padding is kept zero.
template <class T>
constexpr std::size_t content_bytes = std::is_same_v<T, long double> ? 10 : sizeof(T);

template <class T>
T load(const std::array<std::byte, 16>& bytes) {
  T value{};
  std::memcpy(&value, bytes.data(), content_bytes<T>);
  return value;
}
template <class T>
void store(std::array<std::byte, 16>& bytes, T value) {
  std::memcpy(bytes.data(), &value, content_bytes<T>);
}

}  // namespace

MinMax::MinMax(DataType type) noexcept : type_(type) {
  with_ordered_type(type, [&]<class T>(T) {
    store<T>(min_, highest<T>());
    store<T>(max_, lowest<T>());
  });
}

void MinMax::add(std::span<const std::byte> elements) noexcept {
  with_ordered_type(type_, [&]<class T>(T) {
    T min = load<T>(min_);
    T max = load<T>(max_);
    scan_best<T>(elements.data(), elements.size(), min, max);
    store<T>(min_, min);
    store<T>(max_, max);
  });
}

protocol::Statistics MinMax::result() const noexcept {
  std::array<std::byte, 16> min = min_;
  std::array<std::byte, 16> max = max_;
  with_ordered_type(type_, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<T>) {
      if (load<T>(min) > load<T>(max)) {
        store<T>(min, std::numeric_limits<T>::quiet_NaN());
        store<T>(max, std::numeric_limits<T>::quiet_NaN());
      }
    }
  });
  protocol::Statistics statistics;
  std::memcpy(statistics.data(), min.data(), 16);
  std::memcpy(statistics.data() + 16, max.data(), 16);
  return statistics;
}

}  // namespace forebay::client
