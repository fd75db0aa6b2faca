// Provides blocking collectives on arrays of a C++ type, which behave as `collectives.hpp` says. A
// result whose length only the operation determines is returned as a vector.
#pragma once

#include <complex>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Accepts the types that have a `DType`, except bool, whose vector is no array.
template <class T>
concept Element = (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) ||
                  std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

/// Returns memory for a result of `count` elements. The functions below allocate their results with
/// it.
using AllocateResult = std::function<void*(std::int64_t count)>;
void allgather(const void* input, std::int64_t count, DType dtype, AllocateResult output,
               const CollectiveOptions& options = {});
void reducescatter(const void* input, std::int64_t count, DType dtype, AllocateResult output,
                   const AllreduceOptions& options = {});
void alltoall(const void* input, std::span<const std::int64_t> splits, DType dtype,
              AllocateResult output, std::vector<std::int64_t>& received,
              const CollectiveOptions& options = {});

namespace detail {
template <class T>
AllocateResult resized(std::vector<T>& output) {
  return [&output](std::int64_t count) -> void* {
    output.resize(static_cast<std::size_t>(count));
    return output.data();
  };
}
}  // namespace detail

/// Reduces `input` into `output`. Throws Errc::invalid_argument unless they have the same length.
template <class In, Element T>
requires std::is_same_v<std::remove_const_t<In>, T>
void allreduce(std::span<In> input, std::span<T> output, const AllreduceOptions& options = {}) {
  if (input.size() != output.size()) {
    throw Error(Errc::invalid_argument, "allreduce: the input and the output differ in length");
  }
  allreduce(input.data(), output.data(), std::ssize(input), kDTypeOf<T>, options);
}

/// Gives every rank the data of `root`, in place.
template <Element T>
void broadcast(std::span<T> data, int root, const CollectiveOptions& options = {}) {
  broadcast(data.data(), std::ssize(data), kDTypeOf<T>, root, options);
}

/// Returns every rank's elements in rank order.
template <class In, Element T = std::remove_const_t<In>>
[[nodiscard]] std::vector<T> allgather(std::span<In> data, const CollectiveOptions& options = {}) {
  std::vector<T> all;
  allgather(data.data(), std::ssize(data), kDTypeOf<T>, detail::resized(all), options);
  return all;
}

/// Returns this rank's part of the reduced array.
template <class In, Element T = std::remove_const_t<In>>
[[nodiscard]] std::vector<T> reducescatter(std::span<In> data,
                                           const AllreduceOptions& options = {}) {
  std::vector<T> part;
  reducescatter(data.data(), std::ssize(data), kDTypeOf<T>, detail::resized(part), options);
  return part;
}

template <class T>
struct Received {
  std::vector<T> data;               ///< in rank order
  std::vector<std::int64_t> splits;  ///< elements by rank
};
/// Throws Errc::invalid_argument unless `splits` sum to the length of `data`.
template <class In, Element T = std::remove_const_t<In>>
[[nodiscard]] Received<T> alltoall(std::span<In> data, std::span<const std::int64_t> splits,
                                   const CollectiveOptions& options = {}) {
  std::int64_t total = 0;
  for (const std::int64_t split : splits) total += split;
  if (total != std::ssize(data)) {
    throw Error(Errc::invalid_argument, "alltoall: the splits do not sum to the array's length");
  }
  Received<T> received;
  alltoall(data.data(), splits, kDTypeOf<T>, detail::resized(received.data), received.splits,
           options);
  return received;
}

}  // namespace hvd
