// Finds where the tensors of a call lie in the arenas, and records which of them other ranks may
// still write to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "host/allreduce.hpp"
#include "host/arena.hpp"
#include "host/group.hpp"

namespace hvd::detail {

/// Finds where this rank's tensors lie and exchanges that with the other ranks.
class ArenaPlacement {
 public:
  /// The most tensors whose offsets fit into one message.
  static constexpr std::size_t kMost = HostMessage::kLong / 16;

  /// Takes at most `kMost` tensors. `as_given` says that the other ranks can use the contributions
  /// without a change.
  void locate(std::span<const TensorSlice> tensors, std::size_t element, const HostArena& arena,
              bool as_given);
  /// Tells whether no tensor lies in this rank's arena, so that everything is staged on all ranks.
  [[nodiscard]] bool none_in_arena() const noexcept { return here_ == 0; }
  /// Writes the offsets of the tensors to the group's outgoing message.
  void write(HostGroup& group) const;
  /// Returns the detail of that message: whether any tensor lies in this arena, and how many chunks
  /// this rank has put into its slots by then (0: none that the others need to know of).
  [[nodiscard]] std::uint64_t detail(std::uint64_t copied) const noexcept {
    return 2 * copied + (here_ > 0 ? 1 : 0);
  }
  /// Reads the others' messages, after this rank's has been published, and divides the tensors,
  /// which are those of `locate` and outlive their use, into direct and staged ones. The division
  /// is alike on all ranks. Throws Errc::protocol naming a rank that points outside its arena.
  void await_others(HostGroup& group, std::span<const TensorSlice> tensors, std::uint64_t name,
                    Deadline deadline);

  [[nodiscard]] const DirectTensors& direct() const noexcept { return direct_; }
  /// Returns where the other ranks may read and write: the parts of this rank's arena that hold
  /// tensors, as offsets in its segment.
  [[nodiscard]] std::vector<BlockList::Block> exposed_parts() const;
  /// Returns the tensors that go through the slots, in the order of the call.
  [[nodiscard]] std::span<const TensorSlice> staged() const noexcept { return staged_; }

 private:
  /// Holds offsets in the rank's segment.
  struct Offsets {
    std::uint64_t input = 0;
    std::uint64_t output = 0;
  };

  void sort(const HostGroup& group, std::span<const TensorSlice> tensors);
  [[nodiscard]] bool is_direct(const HostGroup& group, std::size_t tensor, std::size_t bytes);

  std::size_t element_ = 0;
  std::vector<Offsets> offsets_;
  std::vector<std::size_t> bytes_;  ///< by tensor, like `offsets_`
  std::size_t here_ = 0;            ///< tensors in this rank's arena
  DirectTensors direct_;
  std::vector<TensorSlice> staged_;
};

/// Represents an exposure epoch, as in MPI's one-sided communication: the time in which other ranks
/// may access memory. A rank that knows where this rank's tensors lie may read and write them until
/// all ranks have finished the operation. A rank that was stopped may do so long after this one has
/// given it up. So before an operation fails on this rank, `end_by_copying` replaces the pages of
/// these tensors by private copies. The other ranks keep the shared pages: they still read there
/// what this rank has contributed, they see nothing that it writes later, and what they write no
/// longer reaches this rank. The class is not thread-safe.
class Exposure {
 public:
  /// All arguments outlive this object. `rank` is for the log.
  Exposure(HostArena& arena, const ArenaPlacement& placement, int rank) noexcept
      : arena_(arena), placement_(placement), rank_(rank) {}

  /// The caller calls it before the other ranks learn where the tensors of `placement` lie.
  void begin() noexcept { exposed_ = true; }
  /// The caller calls it when all ranks have finished the operation, or when none of them begins
  /// it.
  void end() noexcept { exposed_ = false; }
  /// Makes private copies of the exposed tensors, for good. Takes as long as copying them does.
  void end_by_copying() noexcept;

 private:
  HostArena& arena_;
  const ArenaPlacement& placement_;
  const int rank_;
  bool exposed_ = false;
};

}  // namespace hvd::detail
