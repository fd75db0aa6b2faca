// Declares collectives on plain host memory, which need no LibTorch.
//
// The blocking forms run the collective on the calling thread where they can, which is the fastest
// way for small data; the `_async` forms return a `Work` at once. The caller's memory must live
// until the work is done.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <hvd/core/context.hpp>
#include <hvd/ops/default_context.hpp>

namespace hvd {

struct AllreduceOptions {
  std::string name{};  ///< when empty, it comes from the order of unnamed calls
  ReduceOp op = ReduceOp::average;
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t process_set = 0;  ///< `ProcessSet::id`
  Context* context = nullptr;    ///< when null, the default one, `hvd::context()`
};

/// Holds the options of the operations that do not reduce.
struct CollectiveOptions {
  std::string name{};            ///< when empty, it comes from the order of such calls
  std::int32_t process_set = 0;  ///< `ProcessSet::id`
  Context* context = nullptr;    ///< when null, the default one, `hvd::context()`
};

/// Reduces `count` elements of each rank. `output` may equal `input`.
[[nodiscard]] Work allreduce_async(const void* input, void* output, std::int64_t count, DType dtype,
                                   const AllreduceOptions& options = {});
void allreduce(const void* input, void* output, std::int64_t count, DType dtype,
               const AllreduceOptions& options = {});

/// Gives every rank the data of `root`, a rank of the context, in place.
[[nodiscard]] Work broadcast_async(void* data, std::int64_t count, DType dtype, int root,
                                   const CollectiveOptions& options = {});
void broadcast(void* data, std::int64_t count, DType dtype, int root,
               const CollectiveOptions& options = {});

/// Gathers the elements of all ranks, which may contribute different counts. `output` is resized to
/// all of them, in rank order.
[[nodiscard]] Work allgather_async(const void* input, std::int64_t count, DType dtype,
                                   Bytes& output, const CollectiveOptions& options = {});

/// Reduces `count` elements and gives each rank its part, to which `output` is resized. The parts
/// are equal, but the first `count % size` ranks get one element more.
[[nodiscard]] Work reducescatter_async(const void* input, std::int64_t count, DType dtype,
                                       Bytes& output, const AllreduceOptions& options = {});

/// Sends `splits[i]` elements to the i-th rank of the process set, in order from `input`. `output`
/// and `received` are resized to the elements that this rank receives, and their number by rank.
[[nodiscard]] Work alltoall_async(const void* input, std::span<const std::int64_t> splits,
                                  DType dtype, Bytes& output, std::vector<std::int64_t>& received,
                                  const CollectiveOptions& options = {});

/// Returns when every rank of the set has called it.
void barrier(const CollectiveOptions& options = {});

/// Holds the arguments of one allreduce of a group. No allreduce of a group runs before every rank
/// has submitted all of them.
struct AllreduceItem {
  const void* input = nullptr;
  void* output = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;
  std::string name{};
};
[[nodiscard]] std::vector<Work> grouped_allreduce_async(std::span<const AllreduceItem> items,
                                                        const AllreduceOptions& options = {});

template <class T>
inline constexpr DType kDTypeOf = [] {
  if constexpr (std::is_same_v<T, std::uint8_t>)
    return DType::u8;
  else if constexpr (std::is_same_v<T, std::int8_t>)
    return DType::i8;
  else if constexpr (std::is_same_v<T, std::int16_t>)
    return DType::i16;
  else if constexpr (std::is_same_v<T, std::int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, std::int64_t>)
    return DType::i64;
  else if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::boolean;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return DType::c64;
  else if constexpr (std::is_same_v<T, std::complex<double>>)
    return DType::c128;
}();

/// Reduces `data` in place and blocks until the result is there.
template <class T>
void allreduce(std::span<T> data, const AllreduceOptions& options = {}) {
  allreduce(data.data(), data.data(), static_cast<std::int64_t>(data.size()), kDTypeOf<T>, options);
}

}  // namespace hvd
