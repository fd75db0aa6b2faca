// Implements the algorithm of all operations but allreduce and barrier: every rank gives the others
// bytes, and keeps or reduces the bytes that the others give to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include <hvd/core/types.hpp>

#include "host/arena.hpp"
#include "host/arithmetic.hpp"
#include "host/group.hpp"
#include "host/rows.hpp"

namespace hvd::detail {

/// Runs one operation of a group. The caller fills in the rows of `give` and `take`, and then calls
/// `run` once.
///
/// Bytes go one of three ways. Few bytes go in the messages of one turn. Tensors in arenas go
/// directly: the taker reads the giver's arena. All others go through the giver's slots, chunk by
/// chunk, so that one chunk is copied in while the previous one is copied out. Where bytes are
/// moved, each giver's memory decides between the last two ways; a reduction is direct only when
/// all ranks' tensors are in arenas.
class HostExchange {
 public:
  /// Without a `reduction` bytes are moved. With one, the tensors that all ranks give to a rank are
  /// reduced, in rank order, and that rank takes the result. The arguments outlive this object.
  HostExchange(HostGroup& group, const HostArena& arena, const HostArithmetic* reduction,
               Deadline deadline);

  /// Returns the rows that this rank gives: one for all ranks, or one for each rank, this one
  /// included. In a reduction a null piece contributes identity elements.
  [[nodiscard]] HostRows<const std::byte>& give() noexcept { return give_; }
  /// Returns the rows that this rank takes: one from each rank, this one included. In a reduction
  /// it is a single row, with pieces of the same sizes as those given. Bytes for a null piece are
  /// discarded.
  [[nodiscard]] HostRows<std::byte>& take() noexcept { return take_; }

  /// `name` and `most` are the same on all ranks. `most` is the number of bytes of the largest row
  /// that any rank gives, or nothing where the ranks do not know it.
  void run(std::uint64_t name, std::optional<std::size_t> most);

 private:
  [[nodiscard]] bool reduces() const noexcept { return reduction_ != nullptr; }
  /// Returns the index of the row for this rank among those that another rank gives.
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
  /// `from(position)` returns where that rank has put the chunk.
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
  bool own_filled_ = true;          ///< slots also hold what this rank gives to itself
  std::uint64_t first_ = 0;         ///< number of the first chunk
  std::uint64_t given_chunks_ = 0;  ///< the number of chunks in this rank's slots
};

}  // namespace hvd::detail
