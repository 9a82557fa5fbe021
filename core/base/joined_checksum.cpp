// SPDX-License-Identifier: Apache-2.0
#include "base/joined_checksum.h"

#include <array>
#include <cstddef>

namespace forebay {
namespace {

constexpr std::uint32_t polynomial = 0x82F63B78;  // Castagnoli, reflected

using Matrix = std::array<std::uint32_t, 32>;

std::uint32_t times(const Matrix& matrix, std::uint32_t vector) noexcept {
  std::uint32_t sum = 0;
  for (std::size_t column = 0; vector != 0; vector >>= 1, ++column)
    if ((vector & 1) != 0) sum ^= matrix[column];
  return sum;
}

Matrix square(const Matrix& matrix) noexcept {
  Matrix result{};
  for (std::size_t column = 0; column < matrix.size(); ++column) result[column] = times(matrix, matrix[column]);
  return result;
}

/// The i-th appends 2^i zero bytes to a state that is not inverted.
const std::array<Matrix, 64>& appending() noexcept {
  static const std::array<Matrix, 64> matrices = [] {
    Matrix bit{};
    bit[0] = polynomial;
    for (std::size_t column = 1; column < bit.size(); ++column) bit[column] = std::uint32_t{1} << (column - 1);
    std::array<Matrix, 64> found{};
    found[0] = square(square(square(bit)));
    for (std::size_t power = 1; power < found.size(); ++power) found[power] = square(found[power - 1]);
    return found;
  }();
  return matrices;
}

std::uint32_t append_zeros(std::uint32_t state, std::uint64_t bytes) noexcept {
  for (std::size_t power = 0; bytes != 0; bytes >>= 1, ++power)
    if ((bytes & 1) != 0) state = times(appending()[power], state);
  return state;
}

}  // namespace

std::uint32_t joined_checksum(std::uint32_t first, std::uint32_t second, std::uint64_t second_bytes) noexcept {
  // The inversions before and after cancel out.
  return append_zeros(first, second_bytes) ^ second;
}

std::uint32_t checksum_with_zeros(std::uint32_t checksum, std::uint64_t zero_bytes) noexcept {
  return ~append_zeros(~checksum, zero_bytes);
}

}  // namespace forebay
