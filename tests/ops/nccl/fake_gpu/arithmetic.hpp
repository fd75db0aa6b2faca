// Computes an NCCL reduction, element by element in rank order.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <nccl.h>

namespace hvd::test::fake_gpu {

/// A built-in operation, or the sum of premultiplied inputs.
struct Reduction {
  ncclRedOp_t op = ncclSum;
  std::optional<double> premultiply;

  friend bool operator==(const Reduction&, const Reduction&) = default;
};

[[nodiscard]] std::size_t size_of(ncclDataType_t type);

/// Returns one element as a number.
[[nodiscard]] double to_double(const void* element, ncclDataType_t type);

/// `inputs[r]` has the `count` elements of rank r.
[[nodiscard]] std::vector<std::byte> reduce(const std::vector<const void*>& inputs,
                                            std::size_t count, ncclDataType_t type,
                                            const Reduction& reduction);

}  // namespace hvd::test::fake_gpu
