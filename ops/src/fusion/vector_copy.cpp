#include "fusion/vector_copy.hpp"

#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "fusion/vector_copy.cpp"
#include <hwy/foreach_target.h>  // before highway.h: compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hvd::detail {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Copies whole groups of four vectors and returns how many bytes that were.
std::size_t copy_whole_groups(std::byte* dst, const std::byte* src, std::size_t size) {
  const hn::ScalableTag<std::uint8_t> tag;
  const std::size_t step = hn::Lanes(tag);
  auto* const to = reinterpret_cast<std::uint8_t*>(dst);
  const auto* const from = reinterpret_cast<const std::uint8_t*>(src);
  std::size_t i = 0;
  for (; i + 4 * step <= size; i += 4 * step) {
    const auto a = hn::LoadU(tag, from + i);
    const auto b = hn::LoadU(tag, from + i + step);
    const auto c = hn::LoadU(tag, from + i + 2 * step);
    const auto d = hn::LoadU(tag, from + i + 3 * step);
    hn::StoreU(a, tag, to + i);
    hn::StoreU(b, tag, to + i + step);
    hn::StoreU(c, tag, to + i + 2 * step);
    hn::StoreU(d, tag, to + i + 3 * step);
  }
  return i;
}

}  // namespace HWY_NAMESPACE
}  // namespace hvd::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::detail {
namespace {

HWY_EXPORT(copy_whole_groups);

}  // namespace

void copy_vectors(std::byte* dst, const std::byte* src, std::size_t size) {
  const std::size_t done = HWY_DYNAMIC_DISPATCH(copy_whole_groups)(dst, src, size);
  std::memcpy(dst + done, src + done, size - done);
}

}  // namespace hvd::detail
#endif  // HWY_ONCE
