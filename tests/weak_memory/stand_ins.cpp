// Replaces parts of the host engine that the explorer could not use: arithmetic touches some
// elements of each range instead of all, since chunks have 256 KiB, and a wait sleeps at once.
#include <algorithm>

#include "fusion/identity.hpp"
#include "fusion/vector_copy.hpp"
#include "reduce/reduce_all.hpp"
#include "reduce/scale.hpp"
#include "transport/yield_before_sleep.hpp"

namespace hvd::detail {
namespace {

/// Calls `touch` for the first and the last element.
template <class Touch>
void for_some(std::int64_t count, Touch touch) {
  if (count > 0) touch(std::int64_t{0});
  if (count > 1) touch(count - 1);
}

}  // namespace

bool YieldBeforeSleep::pause() noexcept { return false; }

void copy_vectors(std::byte* dst, const std::byte* src, std::size_t size) {
  for_some(static_cast<std::int64_t>(size / sizeof(float)), [&](std::int64_t i) {
    reinterpret_cast<float*>(dst)[i] = reinterpret_cast<const float*>(src)[i];
  });
}

void reduce_all(const ReduceAll&, std::span<std::byte* const> to,
                std::span<const std::byte* const> from, std::int64_t count, Stores) {
  for_some(count, [&](std::int64_t i) {
    float sum = 0;
    for (const std::byte* of : from) sum += reinterpret_cast<const float*>(of)[i];
    for (std::byte* of : to) reinterpret_cast<float*>(of)[i] = sum;
  });
}

void fill_identity(DType, ReduceOp, std::byte*, std::int64_t) {}
void scale(DType, void*, const void*, std::int64_t, double) {}

}  // namespace hvd::detail
