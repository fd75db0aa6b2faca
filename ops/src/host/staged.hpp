// An allreduce of tensors anywhere, through the slots.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

#include "fusion/buffer.hpp"
#include "host/allreduce.hpp"
#include "host/group.hpp"
#include "host/tensor_list.hpp"

namespace hvd {

/// Contributions to the other ranks' shares are copied in, each rank reduces its share from its own
/// memory and the others' slots and puts the result there, the others' results are copied out;
/// chunk by chunk. 4·S bytes of traffic per rank of two. When there is little, everybody reduces
/// all of it, which spares a hand-over. Made on all ranks alike.
class StagedAllreduce {
 public:
  /// So many bytes need no second turn when they come through slots: beyond, that everybody reads
  /// all of them costs more.
  static constexpr std::size_t kWhole = std::size_t{16} << 10;

  /// `tensors` and `scratch` outlive it.
  StagedAllreduce(HostGroup& group, std::span<const TensorSlice> tensors,
                  const HostArithmetic& arithmetic, FusionBuffer& scratch, CallObserver* observer,
                  Deadline deadline);

  /// Of a call that may not come (Backend::announce): copies the first chunk in, where its slot is
  /// free already, and says nothing. Returns how many chunks of the group are in then; 0: it did
  /// not. Then either `begin` one that is alike, or forget it: the slot is written again.
  [[nodiscard]] std::uint64_t copy_ahead();
  /// Copies the first chunk in, unless that is done: as soon as it is known that there is something
  /// to stage, before the others may know. Returns what `copy_ahead` does. Once, and then `run`.
  std::uint64_t begin(bool ahead);
  void run();

 private:
  /// One after the other; `number` counts from the begin of the group.
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
  /// `from`: where the chunk begins.
  void unload(const Chunk& chunk, Range range, const std::byte* from) const;
  [[nodiscard]] Clock::time_point now() const;

  HostGroup& group_;
  std::span<const TensorSlice> tensors_;
  HostArithmetic arithmetic_;
  FusionBuffer& scratch_;
  CallObserver* observer_;  ///< null where nobody asks, or nothing is fused
  Deadline deadline_;
  std::size_t size_;        ///< of an element
  std::int64_t per_chunk_;  ///< elements
  TensorList& list_;
  bool absent_ = false;  ///< this rank's contribution lies nowhere
  bool whole_ = false;   ///< every rank reduces all
  std::uint64_t first_ = 0;
  Clock::time_point began_;
  Clock::duration in_{};
  Clock::duration out_{};
  std::vector<const std::byte*>& from_;
  std::vector<std::byte*>& to_;
};

}  // namespace hvd
