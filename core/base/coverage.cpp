// SPDX-License-Identifier: Apache-2.0
#include "base/coverage.h"

#include <algorithm>
#include <limits>

namespace forebay {
namespace {

// Comparisons of two blocks, and visits of a block while volumes are summed.
constexpr std::size_t work_max = std::size_t{1} << 21;
constexpr std::uint64_t number_max = std::numeric_limits<std::uint64_t>::max();

using Blocks = std::vector<const CoveringBlock*>;

std::uint64_t product(std::uint64_t left, std::uint64_t right) {
  std::uint64_t result = 0;
  return __builtin_mul_overflow(left, right, &result) ? number_max : result;
}

std::uint64_t sum(std::uint64_t left, std::uint64_t right) {
  std::uint64_t result = 0;
  return __builtin_add_overflow(left, right, &result) ? number_max : result;
}

std::uint64_t volume(std::span<const std::uint64_t> extents) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : extents) {
    if (extent == 0) return 0;
    elements = product(elements, extent);
  }
  return elements;
}

bool is_same(const CoveringBlock& left, const CoveringBlock& right) {
  return std::ranges::equal(left.start, right.start) && std::ranges::equal(left.count, right.count);
}

bool overlap(const CoveringBlock& left, const CoveringBlock& right) {
  for (std::size_t d = 0; d < left.start.size(); ++d) {
    if (left.start[d] >= right.start[d] + right.count[d] || right.start[d] >= left.start[d] + left.count[d])
      return false;
  }
  return true;
}

// The dimension in which the blocks begin at the most places: there, few of them lie side by side.
std::size_t dimension_to_sweep(const Blocks& blocks, std::size_t dimensions) {
  std::size_t best = 0, most = 0;
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::vector<std::uint64_t> starts;
    for (const CoveringBlock* block : blocks) starts.push_back(block->start[d]);
    std::ranges::sort(starts);
    const auto places = static_cast<std::size_t>(std::ranges::unique(starts).begin() - starts.begin());
    if (places > most) {
      most = places;
      best = d;
    }
  }
  return best;
}

class Count {
 public:
  explicit Count(std::size_t dimensions) : dimensions_(dimensions) {}

  /// Two that overlap, or none.
  std::optional<std::pair<std::uint32_t, std::uint32_t>> find_overlap(Blocks blocks) {
    const std::size_t d = dimension_to_sweep(blocks, dimensions_);
    std::ranges::sort(blocks, {}, [d](const CoveringBlock* block) { return block->start[d]; });
    Blocks beside;
    for (const CoveringBlock* block : blocks) {
      std::erase_if(beside, [&](const CoveringBlock* other) {
        ++work_;
        return other->start[d] + other->count[d] <= block->start[d];
      });
      for (const CoveringBlock* other : beside) {
        if (++work_ > work_max) return std::nullopt;
        if (overlap(*block, *other)) return std::minmax(block->rank, other->rank);
      }
      beside.push_back(block);
    }
    return std::nullopt;
  }

  /// The elements that at least one of them has, in dimension `d` and the ones behind it.
  std::uint64_t covered(const Blocks& blocks, std::size_t d = 0) {
    std::vector<std::uint64_t> bounds;
    for (const CoveringBlock* block : blocks) {
      bounds.push_back(block->start[d]);
      bounds.push_back(block->start[d] + block->count[d]);
    }
    std::ranges::sort(bounds);
    bounds.erase(std::ranges::unique(bounds).begin(), bounds.end());
    std::uint64_t elements = 0, last_volume = 0;
    Blocks last;
    for (std::size_t i = 0; i + 1 < bounds.size() && !gave_up(); ++i) {
      Blocks here;
      for (const CoveringBlock* block : blocks) {
        ++work_;
        if (block->start[d] <= bounds[i] && bounds[i] < block->start[d] + block->count[d]) here.push_back(block);
      }
      if (here != last) {
        last_volume = here.empty() ? 0 : d + 1 == dimensions_ ? 1 : covered(here, d + 1);
        last = std::move(here);
      }
      elements = sum(elements, product(bounds[i + 1] - bounds[i], last_volume));
    }
    return elements;
  }

  bool gave_up() const noexcept { return work_ > work_max; }

 private:
  std::size_t dimensions_;
  std::size_t work_ = 0;
};

}  // namespace

Coverage coverage_of(std::span<const std::uint64_t> shape, const std::vector<CoveringBlock>& blocks) {
  Coverage coverage;
  coverage.elements = volume(shape);
  Blocks some;
  std::uint64_t together = 0;
  for (const CoveringBlock& block : blocks) {
    const std::uint64_t elements = volume(block.count);
    if (elements == 0) continue;
    // Programs that are started as ranks without knowing it write the same block.
    if (!some.empty() && is_same(*some.back(), block)) {
      coverage.overlap = std::minmax(some.back()->rank, block.rank);
      continue;
    }
    some.push_back(&block);
    together = sum(together, elements);
  }
  coverage.missing = coverage.elements - std::min(together, coverage.elements);
  if (some.size() < 2) return coverage;
  Count count(shape.size());
  if (const auto found = count.find_overlap(some)) coverage.overlap = coverage.overlap ? coverage.overlap : found;
  if (count.gave_up()) {
    coverage.exact = false;
  } else if (coverage.overlap) {
    Count volumes(shape.size());
    const std::uint64_t covered = volumes.covered(some);
    coverage.exact = !volumes.gave_up();
    if (coverage.exact) coverage.missing = coverage.elements - std::min(covered, coverage.elements);
  }
  return coverage;
}

std::string to_text(const Coverage& coverage) {
  std::string text;
  if (coverage.missing > 0) {
    text = "no block covers " + std::string(coverage.exact ? "" : "at least ") + std::to_string(coverage.missing) +
           " of its " + std::to_string(coverage.elements) + " elements";
  }
  if (coverage.overlap) {
    const auto [first, second] = *coverage.overlap;
    text += text.empty() ? "" : "; ";
    text += first == second
                ? "blocks of rank " + std::to_string(first) + " overlap"
                : "blocks of ranks " + std::to_string(first) + " and " + std::to_string(second) + " overlap";
  }
  return text;
}

}  // namespace forebay
