#include "kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // before highway.h: compiles this file once per target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hvd::bounds {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kUnroll = 4;
constexpr std::size_t kAhead = 512 / sizeof(float);

/// Prefetches the four vectors that are needed a fixed distance later.
template <Fetch kFetch>
HWY_INLINE void prefetch(const float* from, std::size_t lanes) {
  if constexpr (kFetch == Fetch::plain) return;
  for (std::size_t i = 0; i < kUnroll; ++i) hwy::Prefetch(from + kAhead + i * lanes);
}

template <bool kStream, class V, class D>
HWY_INLINE void put(V v, D d, float* to) {
  if constexpr (kStream) {
    hn::Stream(v, d, to);
  } else {
    hn::StoreU(v, d, to);
  }
}

/// kInputs 0 means any number of inputs.
template <std::size_t kInputs, Store kStore, Fetch kFetch>
HWY_INLINE void sum_loop(const float* const* HWY_RESTRICT inputs, std::size_t input_count,
                         float* const* HWY_RESTRICT outputs, std::size_t output_count,
                         std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t n = kInputs == 0 ? input_count : kInputs;
  std::size_t i = 0;
  for (; i + kUnroll * lanes <= count; i += kUnroll * lanes) {
    for (std::size_t k = 0; k < n; ++k) prefetch<kFetch>(inputs[k] + i, lanes);
    auto v0 = hn::LoadU(d, inputs[0] + i);
    auto v1 = hn::LoadU(d, inputs[0] + i + lanes);
    auto v2 = hn::LoadU(d, inputs[0] + i + 2 * lanes);
    auto v3 = hn::LoadU(d, inputs[0] + i + 3 * lanes);
    for (std::size_t k = 1; k < n; ++k) {
      v0 = hn::Add(v0, hn::LoadU(d, inputs[k] + i));
      v1 = hn::Add(v1, hn::LoadU(d, inputs[k] + i + lanes));
      v2 = hn::Add(v2, hn::LoadU(d, inputs[k] + i + 2 * lanes));
      v3 = hn::Add(v3, hn::LoadU(d, inputs[k] + i + 3 * lanes));
    }
    put<kStore != Store::cached>(v0, d, outputs[0] + i);
    put<kStore != Store::cached>(v1, d, outputs[0] + i + lanes);
    put<kStore != Store::cached>(v2, d, outputs[0] + i + 2 * lanes);
    put<kStore != Store::cached>(v3, d, outputs[0] + i + 3 * lanes);
    for (std::size_t k = 1; k < output_count; ++k) {
      put<kStore == Store::stream>(v0, d, outputs[k] + i);
      put<kStore == Store::stream>(v1, d, outputs[k] + i + lanes);
      put<kStore == Store::stream>(v2, d, outputs[k] + i + 2 * lanes);
      put<kStore == Store::stream>(v3, d, outputs[k] + i + 3 * lanes);
    }
  }
  for (; i < count; ++i) {
    float value = inputs[0][i];
    for (std::size_t k = 1; k < n; ++k) value += inputs[k][i];
    for (std::size_t k = 0; k < output_count; ++k) outputs[k][i] = value;
  }
}

template <Store kStore, Fetch kFetch>
HWY_INLINE void sum_stored(const float* const* inputs, std::size_t input_count,
                           float* const* outputs, std::size_t output_count, std::size_t count) {
  switch (input_count) {
    case 2:
      return sum_loop<2, kStore, kFetch>(inputs, 2, outputs, output_count, count);
    case 3:
      return sum_loop<3, kStore, kFetch>(inputs, 3, outputs, output_count, count);
    case 4:
      return sum_loop<4, kStore, kFetch>(inputs, 4, outputs, output_count, count);
    default:
      return sum_loop<0, kStore, kFetch>(inputs, input_count, outputs, output_count, count);
  }
}

template <Fetch kFetch>
HWY_INLINE void sum_fetched(const float* const* inputs, std::size_t input_count,
                            float* const* outputs, std::size_t output_count, std::size_t count,
                            Store store) {
  switch (store) {
    case Store::cached:
      return sum_stored<Store::cached, kFetch>(inputs, input_count, outputs, output_count, count);
    case Store::stream:
      sum_stored<Store::stream, kFetch>(inputs, input_count, outputs, output_count, count);
      break;
    case Store::stream_first:
      sum_stored<Store::stream_first, kFetch>(inputs, input_count, outputs, output_count, count);
      break;
  }
  hwy::FlushStream();  // before other ranks are notified
}

void sum_simd(const float* const* inputs, std::size_t input_count, float* const* outputs,
              std::size_t output_count, std::size_t count, Store store, Fetch fetch) {
  if (fetch == Fetch::plain) {
    return sum_fetched<Fetch::plain>(inputs, input_count, outputs, output_count, count, store);
  }
  sum_fetched<Fetch::ahead>(inputs, input_count, outputs, output_count, count, store);
}

template <bool kStream, Fetch kFetch>
HWY_INLINE void copy_loop(const float* HWY_RESTRICT from, float* HWY_RESTRICT to,
                          std::size_t count) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + kUnroll * lanes <= count; i += kUnroll * lanes) {
    prefetch<kFetch>(from + i, lanes);
    const auto v0 = hn::LoadU(d, from + i);
    const auto v1 = hn::LoadU(d, from + i + lanes);
    const auto v2 = hn::LoadU(d, from + i + 2 * lanes);
    const auto v3 = hn::LoadU(d, from + i + 3 * lanes);
    put<kStream>(v0, d, to + i);
    put<kStream>(v1, d, to + i + lanes);
    put<kStream>(v2, d, to + i + 2 * lanes);
    put<kStream>(v3, d, to + i + 3 * lanes);
  }
  for (; i < count; ++i) to[i] = from[i];
}

template <Fetch kFetch>
HWY_INLINE void copy_fetched(const float* from, float* to, std::size_t count, Store store) {
  if (store == Store::cached) return copy_loop<false, kFetch>(from, to, count);
  copy_loop<true, kFetch>(from, to, count);
  hwy::FlushStream();
}

void copy_simd(const float* from, float* to, std::size_t count, Store store, Fetch fetch) {
  if (fetch == Fetch::plain) return copy_fetched<Fetch::plain>(from, to, count, store);
  copy_fetched<Fetch::ahead>(from, to, count, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace hvd::bounds
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hvd::bounds {

HWY_EXPORT(sum_simd);
HWY_EXPORT(copy_simd);

void sum(std::span<const float* const> inputs, std::span<float* const> outputs, std::size_t count,
         Store store, Fetch fetch) {
  HWY_DYNAMIC_DISPATCH(sum_simd)
  (inputs.data(), inputs.size(), outputs.data(), outputs.size(), count, store, fetch);
}

void copy(const float* from, float* to, std::size_t count, Store store, Fetch fetch) {
  HWY_DYNAMIC_DISPATCH(copy_simd)(from, to, count, store, fetch);
}

}  // namespace hvd::bounds
#endif
