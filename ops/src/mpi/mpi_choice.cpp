#include "mpi/mpi_choice.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace hvd {
namespace {

MpiWay way_of(const MpiSample& sample) noexcept {
  return sample.ring <= MpiChoice::kClearly * sample.collective ? MpiWay::ring : MpiWay::collective;
}

std::size_t index_of(OpKind kind) noexcept { return static_cast<std::size_t>(kind); }

}  // namespace

std::string_view to_string(MpiWay way) noexcept {
  return way == MpiWay::ring ? "ring" : "collective";
}

MpiChoice::MpiChoice(std::span<const MpiSample> samples) {
  std::vector<MpiSample> sorted(samples.begin(), samples.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const MpiSample& a, const MpiSample& b) { return a.bytes < b.bytes; });
  std::array<double, kOpKindCount> last{};  // the size before
  for (const MpiSample& sample : sorted) {
    auto& ranges = ranges_[index_of(sample.kind)];
    const auto bytes = static_cast<double>(sample.bytes);
    double& before = last[index_of(sample.kind)];
    if (!ranges.empty()) ranges.back().below = std::sqrt(before * bytes);
    ranges.push_back({std::numeric_limits<double>::infinity(), way_of(sample)});
    before = bytes;
  }
}

MpiWay MpiChoice::of(OpKind kind, std::size_t bytes) const noexcept {
  const auto& ranges = ranges_[index_of(kind)];
  const auto found = std::find_if(ranges.begin(), ranges.end(), [&](const Range& range) {
    return static_cast<double>(bytes) < range.below;
  });
  return found == ranges.end() ? MpiWay::collective : found->way;
}

std::string describe(const MpiSample& sample) {
  return fmt::format("{} {} B: MPI {:.1f} µs, ring {:.1f} µs: {}", to_string(sample.kind),
                     sample.bytes, sample.collective, sample.ring, to_string(way_of(sample)));
}

std::string digest(std::span<const MpiSample> samples) {
  std::string text;
  for (const MpiSample& sample : samples) {
    text += fmt::format("{}{}/{}{}", text.empty() ? "" : " ", to_string(sample.kind), sample.bytes,
                        way_of(sample) == MpiWay::ring ? "r" : "c");
  }
  return text;
}

}  // namespace hvd
