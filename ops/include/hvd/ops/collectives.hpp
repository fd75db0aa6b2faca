// Collectives on plain host memory, torch-free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>

#include <hvd/core/context.hpp>

namespace hvd {

struct AllreduceOptions {
  std::string name{};  ///< empty: from the order of unnamed calls
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;
  double postscale = 1.0;
};

/// `count` elements each; `output` may equal `input`, and both live until the work is done.
[[nodiscard]] Work allreduce_async(Context& context, const void* input, void* output,
                                   std::int64_t count, DType dtype,
                                   const AllreduceOptions& options = {});
[[nodiscard]] Work broadcast_async(Context& context, void* data, std::int64_t count, DType dtype,
                                   int root, const std::string& name = {});
/// Ranks may contribute different counts; `output` is resized to all of them in rank order.
[[nodiscard]] Work allgather_async(Context& context, const void* input, std::int64_t count,
                                   DType dtype, Bytes& output, const std::string& name = {});
/// Returns when every rank has called it.
void barrier(Context& context);

template <class T>
inline constexpr DType kDTypeOf = [] {
  if constexpr (std::is_same_v<T, std::uint8_t>) return DType::u8;
  else if constexpr (std::is_same_v<T, std::int8_t>) return DType::i8;
  else if constexpr (std::is_same_v<T, std::int16_t>) return DType::i16;
  else if constexpr (std::is_same_v<T, std::int32_t>) return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>) return DType::i64;
  else if constexpr (std::is_same_v<T, float>) return DType::f32;
  else if constexpr (std::is_same_v<T, double>) return DType::f64;
  else if constexpr (std::is_same_v<T, bool>) return DType::boolean;
}();

/// In place, blocking.
template <class T>
void allreduce(Context& context, std::span<T> data, const AllreduceOptions& options = {}) {
  allreduce_async(context, data.data(), data.data(), static_cast<std::int64_t>(data.size()),
                  kDTypeOf<T>, options)
      .wait();
}

}  // namespace hvd
