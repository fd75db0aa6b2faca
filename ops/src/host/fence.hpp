// Implements the ready fence of ranks that share memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <hvd/core/internal/ready_fence.hpp>

#include "fence/settlements.hpp"
#include "host/shared.hpp"

namespace hvd::detail {

/// A rank arrives by publishing its message of the group's current turn with the sequence number
/// and the digest of the operation. Where the host backend has prepared that message, it also
/// carries the operation's first data: the contribution itself when it is small, else where the
/// tensors lie. When all members have arrived the operation therefore goes on without another
/// exchange of messages.
class HostFence final : public ReadyFence {
 public:
  explicit HostFence(std::shared_ptr<HostShared> shared) noexcept : shared_(std::move(shared)) {}

  [[nodiscard]] bool arrive_and_wait(std::uint64_t sequence, std::uint64_t digest,
                                     std::span<const int> members) override;
  void settle(std::span<const std::uint64_t> reached) override;
  void abort() noexcept override;

 private:
  struct Call {
    std::uint64_t sequence = 0;
    std::uint64_t digest = 0;
    std::span<const int> members;
  };

  [[nodiscard]] bool run(const Call& call);
  [[nodiscard]] bool await_arrival(HostGroup& group, int position, const Call& call);

  std::shared_ptr<HostShared> shared_;
  Settlements settlements_;
  std::uint64_t last_ = 0;
};

}  // namespace hvd::detail
