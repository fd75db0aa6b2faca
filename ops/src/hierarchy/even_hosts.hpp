// Hosts with as many ranks each, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

namespace hvd {

/// Rank host · each + place is the one at `place` of `host`; those of one place are a lane.
struct EvenHosts {
  int hosts = 1;
  int each = 1;

  [[nodiscard]] static std::optional<EvenHosts> of(std::span<const int> host_of);
};

/// What a rank gives to, or gets from, the other hosts' ranks of its place, of all tensors of an
/// allgather or a reducescatter: in a buffer, tensor after tensor, host after host.
class LaneParts {
 public:
  /// `counts`: of each tensor, elements by rank; they outlive this.
  LaneParts(const EvenHosts& shape, int rank, std::span<const std::span<const std::int64_t>> counts,
            DType dtype);

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Of a tensor, elements by host.
  [[nodiscard]] std::span<const std::int64_t> by_host(std::size_t tensor) const {
    return tensors_[tensor].counts;
  }
  /// Where a tensor's parts lie in the buffer.
  [[nodiscard]] std::size_t offset(std::size_t tensor) const { return tensors_[tensor].offset; }

  /// For each tensor and each host: what its ranks have of the tensor.
  struct Piece {
    std::size_t tensor = 0;
    int host = 0;
    std::size_t in_tensor = 0;             ///< bytes from its begin
    std::size_t in_buffer = 0;             ///< this rank's lane of it, in bytes
    std::span<const std::int64_t> counts;  ///< by place
  };
  [[nodiscard]] std::span<const Piece> pieces() const noexcept { return pieces_; }

 private:
  struct Tensor {
    std::size_t offset = 0;
    std::vector<std::int64_t> counts;
  };
  std::vector<Tensor> tensors_;
  std::vector<Piece> pieces_;
  std::size_t bytes_ = 0;
};

}  // namespace hvd
