// Host memory over several hosts: the real thing behind make_hierarchical_backend.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <hvd/core/backend.hpp>

#include "cost/ways.hpp"
#include "fusion/buffer.hpp"
#include "hierarchy/carrier.hpp"
#include "hierarchy/even_hosts.hpp"
#include "hierarchy/lanes.hpp"

namespace hvd {

struct Topology;

struct HierarchyOptions {
  int rank = 0;
  std::vector<int> host_of;  ///< by rank: its host, numbered by its first rank
  /// Whether `host` may work on one thread while `flat` does on another.
  bool overlaps = false;
  Deadline deadline;  ///< for what has to be set up
};

class HierarchicalBackend final : public Backend {
 public:
  /// `host` null: everything goes through `flat`.
  HierarchicalBackend(std::unique_ptr<Backend> flat, std::unique_ptr<Backend> host,
                      HierarchyOptions options);

  /// By the bytes of a tensor: flat, leaders or lanes. Between calls, the same on all ranks.
  void use(Ways ways) { ways_ = std::move(ways); }
  /// What depends on topology and sizes alone.
  [[nodiscard]] static Ways default_ways();
  static constexpr std::size_t kSegment = std::size_t{2} << 20;

  /// The lowest rank of each host among each other; null on other ranks.
  [[nodiscard]] Backend* leaders() noexcept {
    return lanes_.place == 0 ? across_.front().get() : nullptr;  // they own the first lane
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
  /// With lanes of its own; within a host by the host's backend alone.
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override;
  void abort() noexcept override;

 private:
  class Stages;

  template <class Body>
  void guard(Body body);
  void through_leaders(const AllreduceCall& call, Deadline deadline);
  void through_lanes(const AllreduceCall& call, std::size_t segment, Deadline deadline);
  void gather_through_lanes(const AllgatherCall& call, Deadline deadline);
  void scatter_through_lanes(const ReducescatterCall& call, Deadline deadline);
  void overlap(const Stages& stages);
  [[nodiscard]] int size() const noexcept { return static_cast<int>(options_.host_of.size()); }
  [[nodiscard]] int contributors(const AllreduceCall& call) const noexcept;

  std::unique_ptr<Backend> flat_;
  std::unique_ptr<Backend> host_;
  const HierarchyOptions options_;
  const Lanes lanes_;
  std::optional<EvenHosts> even_;
  std::vector<std::unique_ptr<Backend>> across_;  // by this rank's lanes
  Ways ways_ = default_ways();
  FusionBuffer slices_;
  FusionBuffer absent_;                // what a rank without data puts in
  FusionBuffer discarded_;             // where it throws results
  HierarchicalBackend* whole_ = this;  // what this is a subset of
  std::shared_ptr<std::exception_ptr> first_error_ = std::make_shared<std::exception_ptr>();
  Carrier carrier_;  // ends first: its jobs use the rest
};

/// As the public one, for callers that say the ways afterwards.
[[nodiscard]] std::unique_ptr<HierarchicalBackend> compose_hierarchy(std::unique_ptr<Backend> flat,
                                                                     std::unique_ptr<Backend> host,
                                                                     const Topology& topology,
                                                                     Deadline deadline);

}  // namespace hvd
