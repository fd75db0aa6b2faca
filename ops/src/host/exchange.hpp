// What all operations but the allreduce have in common: every rank gives the others bytes, and
// keeps what it takes or reduces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <hvd/core/types.hpp>

#include "host/arena.hpp"
#include "host/arithmetic.hpp"
#include "host/group.hpp"
#include "host/rows.hpp"

namespace hvd {

/// One operation of a group. Fill in the rows of `give` and `take`, then `run` it, once.
///
/// Bytes go one of three ways. In one turn, with the flags, when they are few. Directly: whoever
/// takes reads the arena of whoever gives. Or through the slots of whoever gives, chunk by chunk,
/// so that one is copied in while the one before is copied out. Moved bytes go as the giver's
/// memory allows; what is reduced goes directly when everybody's does.
class HostExchange {
 public:
  /// `reduction` null: bytes are moved. Else all that is given for a rank is reduced, in rank
  /// order, to what it takes. All outlive it.
  HostExchange(HostGroup& group, const HostArena& arena, const HostArithmetic* reduction,
               Deadline deadline);

  /// One row for all, or one for each rank, this one included. Null pieces of a reduction are
  /// identities.
  [[nodiscard]] HostRows<const std::byte>& give() noexcept { return give_; }
  /// One row from each rank, this one included; of a reduction one in all, whose pieces are as
  /// those given. Null pieces are thrown away.
  [[nodiscard]] HostRows<std::byte>& take() noexcept { return take_; }

  /// `name` is the same on all ranks, and so is `most`: bytes of the largest row that any of them
  /// gives; nothing where they do not know.
  void run(std::uint64_t name, std::optional<std::size_t> most);

 private:
  [[nodiscard]] bool reduces() const noexcept { return reduction_ != nullptr; }
  /// Which row of what others give is for this rank.
  [[nodiscard]] std::size_t window() const noexcept;
  [[nodiscard]] bool all_in_arena() const noexcept;
  void write_offsets() const noexcept;
  [[nodiscard]] const std::byte* source(int position, std::size_t piece) const;

  void in_one_turn(std::uint64_t name, std::size_t most);
  void keep_own();
  void move_directly();
  void reduce_directly();
  void give_chunk(std::uint64_t index);
  void take_chunk(std::uint64_t index, bool heard_of);
  void wait_for_givers();

  void fill(std::byte* to, std::uint64_t index) const;
  /// from(int position): where that rank has put the chunk.
  template <class From>
  void take_from(std::uint64_t index, From from);
  template <class From>
  void reduce_from(std::uint64_t index, From from);

  HostGroup& group_;
  const HostArena& arena_;
  const HostArithmetic* reduction_;
  Deadline deadline_;
  HostRows<const std::byte>& give_;
  HostRows<std::byte>& take_;
  std::size_t width_ = 0;           ///< bytes of a row in a chunk
  bool own_filled_ = true;          ///< this rank's contribution to its own result as well
  std::uint64_t first_ = 0;         ///< number of the first chunk
  std::uint64_t given_chunks_ = 0;  ///< of this rank
};

}  // namespace hvd
