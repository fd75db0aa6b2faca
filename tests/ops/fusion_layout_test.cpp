// Tests the layout of chunk-major packing as data.
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "fusion/buffer.hpp"
#include "fusion/layout.hpp"

namespace hvd::test {
namespace {

using namespace detail;  // NOLINT: a test

struct Part {
  std::size_t tensor;
  Range range;
  std::int64_t offset;
};

std::vector<Part> parts_of(const FusionLayout& layout) {
  std::vector<Part> parts;
  layout.for_each_part([&](std::size_t tensor, Range range, std::int64_t offset) {
    parts.push_back({tensor, range, offset});
  });
  return parts;
}

TEST(PartOf, CoversTheTensorInOrderAndEvenly) {
  for (int n = 1; n <= 9; ++n) {
    for (std::int64_t count = 0; count < 40; ++count) {
      std::int64_t end = 0;
      for (int k = 0; k < n; ++k) {
        const Range part = part_of(count, k, n);
        EXPECT_EQ(part.begin, end);
        EXPECT_EQ(part.begin, count * k / n);
        EXPECT_LE(part.size(), count / n + 1);
        EXPECT_GE(part.size(), count / n);
        end = part.end;
      }
      EXPECT_EQ(end, count);
    }
  }
}

TEST(PartOf, DoesNotOverflow) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(part_of(huge, 0, 7).begin, 0);
  EXPECT_EQ(part_of(huge, 6, 7).end, huge);
  EXPECT_EQ(part_of(huge, 3, 7).end, part_of(huge, 4, 7).begin);
  EXPECT_EQ(part_of(huge, 1, 2).begin, huge / 2);
}

TEST(FusionLayout, PlacesEveryElementExactlyOnce) {
  const std::vector<std::int64_t> counts{5, 0, 1, 12, 7};
  for (int n = 1; n <= 8; ++n) {
    const FusionLayout layout(counts, n);
    std::vector<std::vector<int>> seen;
    for (const std::int64_t count : counts) seen.emplace_back(static_cast<std::size_t>(count), 0);
    std::int64_t offset = 0;
    for (const Part& part : parts_of(layout)) {
      EXPECT_EQ(part.offset, offset);
      offset += part.range.size();
      for (std::int64_t i = part.range.begin; i < part.range.end; ++i) {
        ++seen[part.tensor][static_cast<std::size_t>(i)];
      }
    }
    EXPECT_EQ(offset, layout.total());
    EXPECT_EQ(layout.total(), 25);
    for (const auto& tensor : seen) {
      for (const int times : tensor) EXPECT_EQ(times, 1);
    }
  }
}

TEST(FusionLayout, KeepsAnElementInItsChunkWhateverItIsFusedWith) {
  const std::int64_t count = 23;
  for (int n = 1; n <= 8; ++n) {
    const FusionLayout alone({count}, n);
    const FusionLayout fused({100, count, 3}, n);
    for (const Part& part : parts_of(fused)) {
      if (part.tensor != 1) continue;
      int chunk = 0;
      while (part.offset >= fused.bounds()[static_cast<std::size_t>(chunk) + 1]) ++chunk;
      EXPECT_GE(part.range.begin, alone.bounds()[static_cast<std::size_t>(chunk)]);
      EXPECT_LE(part.range.end, alone.bounds()[static_cast<std::size_t>(chunk) + 1]);
    }
  }
}

TEST(FusionBuffer, GrowsAndStaysAligned) {
  FusionBuffer buffer;
  EXPECT_EQ(buffer.capacity(), 0U);
  std::byte* const large = buffer.reserve(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % FusionBuffer::kAlignment, 0U);
  EXPECT_EQ(buffer.reserve(10), large);
  EXPECT_EQ(buffer.capacity(), 1000U);
  EXPECT_NE(buffer.reserve(5000), nullptr);
  EXPECT_EQ(buffer.capacity(), 5000U);
}

}  // namespace
}  // namespace hvd::test
