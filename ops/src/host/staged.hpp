// Implements an allreduce, through the slots, of tensors that need not lie in the arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "fusion/buffer.hpp"
#include "host/allreduce.hpp"
#include "host/group.hpp"
#include "host/tensor_list.hpp"

namespace hvd::detail {

/// Works chunk by chunk. A rank copies its contribution to the other ranks' shares into its slot;
/// it reduces its own share from its memory and the others' slots, and stores the result there; and
/// it copies the others' results out of its slot. Of two ranks each has 4·S bytes of memory
/// traffic, S being the bytes of the tensors. If the bytes are few, every rank reduces all of them,
/// which saves a wait. All ranks construct it with tensors of the same sizes.
class StagedAllreduce {
 public:
  /// Up to this many bytes every rank reduces all of them. With more, reading them all on every
  /// rank costs more than waiting for the others' results.
  static constexpr std::size_t kWhole = std::size_t{16} << 10;

  /// `tensors` and `scratch` outlive this object.
  StagedAllreduce(HostGroup& group, std::span<const TensorSlice> tensors,
                  const HostArithmetic& arithmetic, FusionBuffer& scratch, CallObserver* observer,
                  Deadline deadline);

  /// Serves a call that is announced and may be cancelled (Backend::announce). It copies the first
  /// chunk into its slot if that is free, without publishing it, and returns how many chunks this
  /// rank has copied since the group began, or 0 when the slot was not free. Afterwards the caller
  /// calls `begin(true)` on another object for the same call; after a cancelled call the slot is
  /// simply written again.
  [[nodiscard]] std::uint64_t copy_ahead();
  /// Copies the first chunk into its slot, unless `copy_ahead` has done so (`ahead`), and publishes
  /// it. It need not wait until the other ranks have arrived. Returns the same count as
  /// `copy_ahead`. The caller calls it once, before `run`.
  std::uint64_t begin(bool ahead);
  void run();

 private:
  /// Describes consecutive elements; `number` counts the chunks since the group began.
  struct Chunk {
    std::uint64_t number = 0;
    Range elements;  ///< in the row of all tensors
  };

  [[nodiscard]] std::uint64_t count() const;
  [[nodiscard]] Chunk chunk(std::uint64_t index) const;
  [[nodiscard]] Range share(const Chunk& chunk, int position) const;
  [[nodiscard]] std::byte* in_slot(const Chunk& chunk, int position, std::int64_t at) const;
  [[nodiscard]] bool in_place(Range own) const;

  void run_whole();
  void wait_for_copies(const Chunk& chunk);
  void tell_observer() const;
  void copy_in(std::uint64_t index);
  void load(const Chunk& chunk) const;
  void reduce(const Chunk& chunk);
  void reduce_in_place(const Chunk& chunk, Range own);
  void copy_out(const Chunk& chunk);
  void load(const Chunk& chunk, Range range) const;
  /// `from` holds results, from the first element of the chunk on.
  void unload(const Chunk& chunk, Range range, const std::byte* from) const;
  [[nodiscard]] Clock::time_point now() const;

  HostGroup& group_;
  std::span<const TensorSlice> tensors_;
  HostArithmetic arithmetic_;
  FusionBuffer& scratch_;
  CallObserver* observer_;  ///< null where there is none, or where nothing is fused
  Deadline deadline_;
  std::size_t size_;        ///< of an element
  std::int64_t per_chunk_;  ///< elements
  TensorList& list_;
  bool absent_ = false;  ///< some tensor has no input here and counts as identity elements
  bool whole_ = false;   ///< every rank reduces everything
  std::uint64_t first_ = 0;
  Clock::time_point began_;
  Clock::duration in_{};
  Clock::duration out_{};
  std::vector<const std::byte*>& from_;
  std::vector<std::byte*>& to_;
};

}  // namespace hvd::detail
