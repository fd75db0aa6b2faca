// Host memory among ranks of one host: the real thing behind make_host_engine.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <hvd/core/backend.hpp>
#include <hvd/core/fd.hpp>

#include "fusion/buffer.hpp"
#include "host/exposure.hpp"
#include "host/group.hpp"
#include "host/host_arena.hpp"
#include "host/residency.hpp"
#include "host/segment.hpp"
#include "host/staged.hpp"
#include "host/waiting.hpp"
#include "transport/failure.hpp"

namespace hvd {

/// What a backend and its subsets, of which one works at a time, have together.
struct HostShared {
  struct Peer {
    HostSegment segment;  ///< nothing at this rank's own place
    UniqueFd stream;
  };

  HostShared(std::shared_ptr<const HostSegment> own, std::vector<Peer> peers, int rank, int spins);
  ~HostShared();

  /// What this rank sees of `rank`, whose block is at `block` of its segment.
  [[nodiscard]] HostMember member(int rank, std::size_t block) const;

  int rank;
  std::shared_ptr<const HostSegment> own;
  std::vector<Peer> peers;  ///< by rank
  std::shared_ptr<HostArena> arena;
  Failure failure;
  HostWaiting waiting;
  FusionBuffer scratch;
  Residency residency;
  Exposure exposure{*arena, residency, rank};
  /// By ranks: groups stay, since a member may still read a block when another is through.
  std::map<std::vector<int>, std::shared_ptr<HostGroup>> groups;
  std::vector<std::byte*> blocks;  ///< in the arena, of the groups
};

class HostBackend final : public Backend {
 public:
  /// `group` is null where there was no memory for one, or nobody to share it with: then `others`,
  /// over the same ranks, does everything.
  HostBackend(std::shared_ptr<HostShared> shared, std::shared_ptr<HostGroup> group,
              std::vector<int> ranks, std::unique_ptr<Backend> others);

  [[nodiscard]] std::string_view name() const noexcept override { return "host"; }
  [[nodiscard]] bool supports(OpKind kind, Device device, DType dtype,
                              ReduceOp op) const noexcept override;
  void announce(const AllreduceCall& call, std::uint64_t ticket) override;
  void retract() noexcept override;
  void allreduce(const AllreduceCall& call, Deadline deadline) override;
  void allgather(const AllgatherCall& call, Deadline deadline) override;
  void broadcast(const BroadcastCall& call, Deadline deadline) override;
  void reducescatter(const ReducescatterCall& call, Deadline deadline) override;
  void alltoall(const AlltoallCall& call, Deadline deadline) override;
  void barrier(Deadline deadline) override;
  [[nodiscard]] std::unique_ptr<Backend> subset(std::span<const int> ranks,
                                                Deadline deadline) override;
  void abort() noexcept override;

 private:
  template <class Call>
  using Exchange = void (*)(HostGroup&, const HostArena&, const Call&, Deadline);
  template <class Call>
  using Otherwise = void (Backend::*)(const Call&, Deadline);

  /// The error of a failed call gets out when nobody can write to this rank's memory any more.
  template <class Body>
  void guard(Body body);
  /// `here`, or where there is no group what `others_` do.
  template <class Call>
  void exchange(Exchange<Call> here, Otherwise<Call> otherwise, const Call& call,
                Deadline deadline);
  [[nodiscard]] int size() const noexcept { return static_cast<int>(ranks_.size()); }
  [[nodiscard]] int group_rank() const noexcept;
  void reduce_alone(const AllreduceCall& call) const;
  [[nodiscard]] bool is_small(const AllreduceCall& call, std::int64_t total) const noexcept;
  void look_at(const AllreduceCall& call);
  /// `tensors` of it.
  [[nodiscard]] StagedAllreduce stage(const AllreduceCall& call,
                                      std::span<const TensorSlice> tensors, Deadline deadline);
  /// `said`: where the tensors lie.
  void reduce_large(const AllreduceCall& call, bool said, Deadline deadline);
  [[nodiscard]] std::shared_ptr<HostGroup> make_group(const std::vector<int>& ranks,
                                                      Backend& members, Deadline deadline);

  std::shared_ptr<HostShared> shared_;
  std::shared_ptr<HostGroup> group_;
  std::vector<int> ranks_;  ///< in the context
  std::unique_ptr<Backend> others_;
  bool announced_ = false;
  bool copied_ahead_ = false;  ///< with the announcement
};

}  // namespace hvd
