// Random collectives and their required results.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/core/arena.hpp>
#include <hvd/core/internal/backend.hpp>

namespace hvd::test {

using Buffer = std::vector<std::byte>;

/// Seed and number of ranks determine everything, so all ranks draw the same case.
struct RandomCase {
  std::uint64_t seed = 0;
  int ranks = 1;
  OpKind kind = OpKind::allreduce;
  DType dtype = DType::f32;
  ReduceOp op = ReduceOp::sum;
  /// The number of elements of each tensor. For allgather and alltoall it is the base from which
  /// the counts of the ranks differ.
  std::vector<std::int64_t> counts;
  bool in_place = false;         ///< of an allgather: the input lies at its place in the output
  std::size_t shift = 0;         ///< bytes by which inputs are misaligned
  std::size_t output_shift = 0;  ///< bytes by which outputs are misaligned
  double prescale = 1.0;
  double postscale = 1.0;
  int root = 0;
  bool specials = false;   ///< NaN, infinities, denormals, the smallest integer
  bool scattered = false;  ///< some memory is outside of the arena, if there is one

  [[nodiscard]] std::string text() const;

  /// Returns the elements of tensor t that `rank` contributes to an allgather or gets from a
  /// reducescatter.
  [[nodiscard]] std::int64_t part(std::size_t t, int rank) const;
  /// Returns the elements that rank a sends to b in an alltoall.
  [[nodiscard]] std::int64_t sent(int a, int b) const;
  /// Returns whether the memory of tensor t is in the arena.
  [[nodiscard]] bool in_arena(std::size_t t, int rank) const;
  /// Returns the input of `rank`.
  [[nodiscard]] Buffer input(std::size_t t, int rank) const;
};

[[nodiscard]] RandomCase draw_case(std::uint64_t seed, int ranks);

/// Runs the case on this rank and returns its results by tensor. Fails the current test when memory
/// beside them was written. All memory is private when `arena` is null.
[[nodiscard]] std::vector<Buffer> run_case(Backend& backend, int rank, const RandomCase& test,
                                           const std::shared_ptr<Arena>& arena);

/// Fails the current test unless `results`, by rank and tensor, are right and have the same bits on
/// all ranks that hold the same data.
void check_case(const RandomCase& test, const std::vector<std::vector<Buffer>>& results);

}  // namespace hvd::test
