// Compares every operation of the NCCL backend with the serial reference, on the fake and on a GPU.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <hvd/ops/internal/backends.hpp>

#include "support/backend_checks.hpp"

namespace hvd::test {

/// The backends for host memory of ranks that are threads.
class Hosts {
 public:
  explicit Hosts(int ranks) {
    for (auto& transport : make_in_process_transports(ranks)) {
      backends_.push_back(make_ring_backend(std::move(transport)));
    }
  }
  Backend& operator[](int rank) { return *backends_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<Backend>> backends_;
};

/// Each of these functions checks on one rank. Wrong results fail the current test with the rank.
void check_every_reduction(BackendChecks checks);
void check_scales(BackendChecks checks);
/// These need the kernel.
void check_integer_scales(BackendChecks checks);
void check_conversions(BackendChecks checks);
void check_broadcasts(BackendChecks checks);
void check_allgathers(BackendChecks checks);
void check_reducescatters(BackendChecks checks);
void check_alltoalls(BackendChecks checks);
void check_absent_ranks(BackendChecks checks);
/// Checks that operations which NCCL cannot do are refused before anything is launched, and that
/// the backend stays usable.
void check_refusals(BackendChecks checks);

}  // namespace hvd::test
