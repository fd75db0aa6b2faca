// Runs the engine of one host alone, without submission, negotiation and wake-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/backends.hpp>

#include "options.hpp"

namespace hvd::bench {

/// Exists beside a context of the same ranks and calls its own backend on the caller's thread, as
/// the executor does.
class Engine {
 public:
  /// Collective. Throws Error with Errc::unsupported when ranks are on several hosts or there is
  /// only one rank.
  Engine();

  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept { return host_.arena; }
  /// Reduces in place.
  void allreduce(std::byte* data, std::int64_t count, const Options& options);

 private:
  Session session_;
  HostEngine host_;
};

}  // namespace hvd::bench
