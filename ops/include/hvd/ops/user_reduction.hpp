// Declares reductions that the program defines, on host memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include <hvd/ops/collectives.hpp>

namespace hvd {

/// Combines `count` elements, into[i] = into[i] (op) from[i].
using CombineBytes = std::function<void(void* into, const void* from, std::int64_t count)>;

/// Replaces an array of `count` elements of `size` bytes by x0 (op) x1 (op) … of all ranks, in rank
/// order; the operation need not commute. Blocks. All ranks of the set call it with arrays of the
/// same length and the same operation. One rank combines the elements of each part, in a direct
/// reduce-scatter and an allgather (Rabenseifner 2004), which move 2(n-1)/n of the bytes. Throws
/// what `combine` throws, on the rank where it does; the others then get Errc::mismatch.
void allreduce_bytes(void* data, std::int64_t count, std::size_t size, const CombineBytes& combine,
                     const CollectiveOptions& options = {});

/// Does the same for arrays of any trivially copyable type: `op(into, from)` combines two elements.
template <class T, class Op>
void allreduce_with(std::span<T> data, Op op, const CollectiveOptions& options = {}) {
  static_assert(std::is_trivially_copyable_v<T>, "elements travel as bytes");
  const auto combine = [&op](void* into, const void* from, std::int64_t count) {
    T* const a = static_cast<T*>(into);
    const T* const b = static_cast<const T*>(from);
    if constexpr (alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) {
      for (std::int64_t i = 0; i < count; ++i) op(a[i], b[i]);
    } else {  // received bytes may be less aligned
      for (std::int64_t i = 0; i < count; ++i) {
        T x;
        T y;
        std::memcpy(&x, a + i, sizeof(T));
        std::memcpy(&y, b + i, sizeof(T));
        op(x, std::as_const(y));
        std::memcpy(static_cast<void*>(a + i), &x, sizeof(T));
      }
    }
  };
  allreduce_bytes(data.data(), std::ssize(data), sizeof(T), combine, options);
}

}  // namespace hvd
