// Collectives drawn at random, and what must come out of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/core/arena.hpp>
#include <hvd/core/backend.hpp>

namespace hvd::test {

using Buffer = std::vector<std::byte>;

/// Everything follows from the seed and the number of ranks, so that all ranks draw the same.
struct RandomCase {
  std::uint64_t seed = 0;
  int ranks = 1;
  OpKind kind = OpKind::allreduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  /// Elements: of each tensor. Of an allgather or alltoall the base from which each rank's differ.
  std::vector<std::int64_t> counts;
  bool in_place = false;         ///< of an allgather: the input lies where the output will have it
  std::size_t shift = 0;         ///< bytes by which inputs are misaligned
  std::size_t output_shift = 0;  ///< likewise outputs
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  bool specials = false;   ///< NaN, infinities, denormals, the smallest integer
  bool scattered = false;  ///< not everything lies in the arena, if there is one

  [[nodiscard]] std::string text() const;

  /// Of an allgather what `rank` contributes to tensor t, of a reducescatter what it gets.
  [[nodiscard]] std::int64_t part(std::size_t t, int rank) const;
  /// Of an alltoall: what rank a sends to b.
  [[nodiscard]] std::int64_t sent(int a, int b) const;
  /// Whether the memory of tensor t is in the arena.
  [[nodiscard]] bool in_arena(std::size_t t, int rank) const;
  /// What `rank` puts in.
  [[nodiscard]] Buffer input(std::size_t t, int rank) const;
};

[[nodiscard]] RandomCase draw_case(std::uint64_t seed, int ranks);

/// This rank's side; its results by tensor. Fails the current test when memory beside them was
/// written. All memory is private where `arena` is null.
[[nodiscard]] std::vector<Buffer> run_case(Backend& backend, int rank, const RandomCase& test,
                                           const std::shared_ptr<Arena>& arena);

/// Fails the current test unless `results`, by rank and tensor, are right, and the same bits where
/// ranks hold the same.
void check_case(const RandomCase& test, const std::vector<std::vector<Buffer>>& results);

}  // namespace hvd::test
