// Implements collectives on host memory over several hosts. make_hierarchical_backend makes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "fusion/buffer.hpp"
#include "hierarchy/comm_thread.hpp"
#include "hierarchy/lanes.hpp"
#include "transport/failure.hpp"
#include "tuning/algorithm_plan.hpp"

namespace hvd {
struct Topology;
}

namespace hvd::detail {

struct HierarchyOptions {
  int rank = 0;
  std::vector<int> host_of;  ///< by rank; a host is numbered by its first rank
  /// True if `host` and `flat` may work at the same time on two threads.
  bool overlaps = false;
  Deadline deadline;  ///< of the set-up
};

class HierarchicalBackend final : public Backend {
 public:
  /// Everything goes through `flat` when `host` is null.
  HierarchicalBackend(std::unique_ptr<Backend> flat, std::unique_ptr<Backend> host,
                      HierarchyOptions options);

  /// Sets which of flat, leaders and lanes is used, by the bytes of a tensor. The caller calls it
  /// between collectives, with the same table on all ranks.
  void use(AlgorithmTable table) { table_ = std::move(table); }
  /// Returns the table that is used without a measurement.
  [[nodiscard]] static AlgorithmTable default_table();
  static constexpr std::size_t kSegment = std::size_t{2} << 20;

  /// Returns the backend of the lowest ranks of the hosts, or null on other ranks.
  [[nodiscard]] Backend* leaders() noexcept {
    return lanes_.local_rank == 0 ? across_.front().get() : nullptr;  // they own the first lane
  }
  [[nodiscard]] int hosts() const noexcept { return static_cast<int>(lanes_.owners[0].size()); }

  [[nodiscard]] std::string_view name() const noexcept override {
    return host_ ? "hierarchical" : flat_->name();
  }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override;
  void alltoall(const AlltoallCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  /// The subset has lanes of its own. Within a host it uses the host's backend alone.
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override;
  void abort() noexcept override;

 private:
  class Stages;

  /// Runs `body`, or throws the error of an earlier call: when one of the two backends has failed,
  /// the other is not used any more either.
  template <class Body>
  void guard(Body body) {
    whole_->failure_.guard(body);
  }
  void through_leaders(const AllreduceCall& call, Deadline deadline);
  void through_lanes(const AllreduceCall& call, std::size_t segment, Deadline deadline);
  void gather_through_lanes(const AllgatherCall& call, Deadline deadline);
  void scatter_through_lanes(const ReducescatterCall& call, Deadline deadline);
  void overlap(const Stages& stages);
  [[nodiscard]] int size() const noexcept { return static_cast<int>(options_.host_of.size()); }
  /// Returns the divisor of an average, which the backends of the steps cannot know.
  template <class Call>
  [[nodiscard]] int contributors(const Call& call) const noexcept {
    return call.contributors > 0 ? call.contributors : size();
  }

  std::unique_ptr<Backend> flat_;
  std::unique_ptr<Backend> host_;
  const HierarchyOptions options_;
  const Lanes lanes_;
  std::optional<EvenHosts> even_;
  std::vector<std::unique_ptr<Backend>> across_;  // by lane of this rank
  AlgorithmTable table_ = default_table();
  FusionBuffer slices_;
  FusionBuffer absent_;                // identity elements, for inputs that are null
  FusionBuffer discarded_;             // memory for outputs that are null
  HierarchicalBackend* whole_ = this;  // the backend of which this is a subset
  Failure failure_;                    // a subset uses that of `whole_`
  CommThread comm_thread_;             // it ends first, since its jobs use the rest
};

/// Does what make_hierarchical_backend does, for callers that set the table afterwards.
[[nodiscard]] std::unique_ptr<HierarchicalBackend> compose_hierarchy(std::unique_ptr<Backend> flat,
                                                                     std::unique_ptr<Backend> host,
                                                                     const Topology& topology,
                                                                     Deadline deadline);

}  // namespace hvd::detail
