// What the ranks of an optimizer tell each other once, in its first step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include <hvd/core/context.hpp>

namespace hvd {

/// Which gradients are sparse, for ranks that have none of them yet; and whether all ranks have the
/// same gradients bit by bit, which says that they read the same data.
class FirstStep {
 public:
  FirstStep(Context& context, std::int32_t process_set, std::size_t parameters);

  /// This rank's own gradient of the parameter, before it is reduced. One thread at a time.
  void saw(std::size_t parameter, const torch::Tensor& gradient);
  /// Collective. An allreduce, so that ranks that have joined already do not matter.
  void exchange(const std::string& name);

  /// Some rank's is. After `exchange`.
  [[nodiscard]] bool is_sparse(std::size_t parameter) const;
  /// Several ranks had gradients, not only zeros, and all had the same. After `exchange`.
  [[nodiscard]] bool all_are_equal() const noexcept { return all_are_equal_; }

 private:
  Context& context_;
  const std::int32_t process_set_;
  std::vector<std::int64_t> sparse_;  ///< 0 or 1 by parameter
  std::uint64_t digest_ = 0;
  bool nonzero_ = false;
  bool all_are_equal_ = false;
};

}  // namespace hvd
