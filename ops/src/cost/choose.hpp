// From times to ways. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <hvd/core/types.hpp>

#include "cost/ways.hpp"

namespace hvd {

/// How long one call took each way, µs.
struct Sample {
  OpKind kind = OpKind::allreduce;
  std::size_t bytes = 0;
  std::vector<double> times;  ///< by contender
};

struct ContenderWay {
  Way way = Way::ring;
  std::size_t segment = 0;
};

/// Another way than the default one must take at most this part of its time: what is within the
/// noise must not differ from run to run.
inline constexpr double kClearly = 0.85;

/// The contender that is taken at the sample's size. The default way is one of them.
[[nodiscard]] std::size_t best(const Sample& sample, std::span<const ContenderWay> contenders,
                               const Ways& defaults);

/// A size takes the best way of the sampled size that is nearest to it by ratio; where no sample is
/// of this kind, the default one. Samples in any order.
[[nodiscard]] Ways choose(OpKind kind, std::span<const Sample> samples,
                          std::span<const ContenderWay> contenders, const Ways& defaults);

/// One line for people, as in "allreduce 65536 B: collective 11.0 µs, ring 7.5 µs: ring".
[[nodiscard]] std::string describe(const Sample& sample, std::span<const ContenderWay> contenders,
                                   const Ways& defaults);

}  // namespace hvd
