// The sequential model of the outside tester: what each rank contributes to an operation and what
// must come out, computed by every rank for itself. All values are small integers or powers of two,
// and every sum of them is exact in every type, so that results are compared bit by bit. Only the
// values of inexact operations are others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <hvd/hvd.hpp>

namespace outside {

/// Mixes its arguments (the finalizer of MurmurHash3).
[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL + b + 0x632be59bd9b4e019ULL;
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

/// Generates the same numbers on all ranks with the same seed.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}
  /// Returns a number below `bound`, which is at least 1.
  [[nodiscard]] std::int64_t below(std::int64_t bound) noexcept {
    return static_cast<std::int64_t>(mix(state_++, 17) % static_cast<std::uint64_t>(bound));
  }
  [[nodiscard]] bool chance(int percent) noexcept { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

/// One operation as all ranks agree on it.
struct Op {
  hvd::OpKind kind = hvd::OpKind::allreduce;
  hvd::DType dtype = hvd::DType::f32;
  hvd::ReduceOp op = hvd::ReduceOp::sum;
  std::int64_t count = 1;
  std::int32_t process_set = 0;
  std::vector<int> ranks;  ///< the members of the process set
  int root = 0;
  double prescale = 1;
  double postscale = 1;
  bool mismatch = false;  ///< one rank asks for another count, so that all must get an error
  bool inexact = false;   ///< a sum whose last bits depend on the order of the additions
  std::string name{};
};

/// Returns how many elements a rank contributes to an allgather, or sends to a rank in an alltoall.
[[nodiscard]] std::int64_t rows(const Op& op, std::uint64_t salt, int from, int to = 0);
/// Returns what a rank contributes.
[[nodiscard]] hvd::Bytes contribution(const Op& op, std::uint64_t salt, int rank);
/// Returns what `rank` must get. In an allreduce, only `contributors` have data, and an average
/// divides by `divisor`.
[[nodiscard]] hvd::Bytes result(const Op& op, std::uint64_t salt, int rank,
                                std::span<const int> contributors, std::int64_t divisor);
/// Returns whether each element of `sums` differs from the sum of all contributions to an inexact
/// operation by no more than the additions may round.
[[nodiscard]] bool is_near(const Op& op, std::uint64_t salt, const hvd::Bytes& sums);

}  // namespace outside
