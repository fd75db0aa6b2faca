// MPI's own collective or the ring over MPI's messages: by operation and size. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd {

enum class MpiWay : std::uint8_t { collective, ring };

[[nodiscard]] std::string_view to_string(MpiWay way) noexcept;

/// How long one call took each way, µs.
struct MpiSample {
  OpKind kind = OpKind::allreduce;
  std::size_t bytes = 0;
  double collective = 0;
  double ring = 0;
};

/// A size takes the faster way of the measured size that is nearest to it by ratio. MPI's own stays
/// unless the ring is clearly faster: what is within the noise must not differ from run to run.
class MpiChoice {
 public:
  /// The ring must take at most this part of MPI's time.
  static constexpr double kClearly = 0.85;

  /// MPI's own always.
  MpiChoice() = default;
  /// In any order; a kind without samples is MPI's own.
  explicit MpiChoice(std::span<const MpiSample> samples);

  [[nodiscard]] MpiWay of(OpKind kind, std::size_t bytes) const noexcept;

 private:
  struct Range {
    double below = 0;  ///< bytes
    MpiWay way = MpiWay::collective;
  };
  std::array<std::vector<Range>, kOpKindCount> ranges_;  ///< ascending; the last has no end
};

/// One line for people, as in "allreduce 65536 B: MPI 11.0 µs, ring 7.5 µs: ring".
[[nodiscard]] std::string describe(const MpiSample& sample);

/// What each sample became, as bits are promised for it: equal choices have equal texts.
[[nodiscard]] std::string digest(std::span<const MpiSample> samples);

}  // namespace hvd
