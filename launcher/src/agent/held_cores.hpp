// Keeps the jobs of a machine from using the same cores.
#pragma once

#include <vector>

#include <hvd/core/internal/fd.hpp>

namespace hvd::launcher {

/// Holds cores for a job while this object exists. To hold a core is to own the abstract Unix
/// socket with its number, so all users' jobs see it, no file is left behind, and the kernel
/// releases it when the process ends. Jobs in different network namespaces do not see each other's
/// cores.
class HeldCores {
 public:
  /// Returns whether a job holds the core.
  [[nodiscard]] static bool is_held(int core);

  /// Holds all of the cores, or none. Returns false when another job holds one of them, or the
  /// system has no descriptors.
  [[nodiscard]] bool hold(const std::vector<int>& cores);

 private:
  std::vector<UniqueFd> sockets_;
};

}  // namespace hvd::launcher
