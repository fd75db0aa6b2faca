#include "mpi/mpi_plan.hpp"

#include <algorithm>

namespace hvd {
namespace {

constexpr std::size_t kKi = 1024;
// The most used operation first; see docs/backends.md.
constexpr std::array kPoints{
    Point{OpKind::allreduce, 256},         Point{OpKind::allreduce, 8 * kKi},
    Point{OpKind::allreduce, 128 * kKi},   Point{OpKind::allreduce, 1024 * kKi},
    Point{OpKind::broadcast, 8 * kKi},     Point{OpKind::allgather, 8 * kKi},
    Point{OpKind::reducescatter, 8 * kKi}, Point{OpKind::broadcast, 256 * kKi},
    Point{OpKind::allgather, 256 * kKi},   Point{OpKind::reducescatter, 256 * kKi},
    Point{OpKind::allreduce, 4096 * kKi},
};

constexpr std::array kKinds{OpKind::allreduce, OpKind::allgather, OpKind::broadcast,
                            OpKind::reducescatter};

Ways own() { return Ways(Way::collective); }

}  // namespace

MpiWays::MpiWays(const Plan& plan) : ways_{own(), own(), own(), own()} {
  for (std::size_t i = 0; i < kKinds.size(); ++i) ways_[i] = plan.of(Plan::mpi(kKinds[i]), own());
}

Way MpiWays::of(OpKind kind, std::size_t bytes) const noexcept {
  const auto found = std::find(kKinds.begin(), kKinds.end(), kind);
  if (found == kKinds.end()) return Way::collective;
  return ways_[static_cast<std::size_t>(found - kKinds.begin())].at(bytes);
}

Plan default_mpi_plan() { return mpi_plan({}); }

std::vector<Sample> measure_mpi(Backend& collective, Backend& ring, const Measurement& options) {
  const std::array<Contender, 2> contenders{[&]() -> Backend& { return collective; },
                                            [&]() -> Backend& { return ring; }};
  return measure(contenders, kPoints, options);
}

Plan mpi_plan(std::span<const Sample> samples) {
  Plan plan;
  for (const OpKind kind : kKinds) {
    plan.set(Plan::mpi(kind), choose(kind, samples, kMpiWays, own()));
  }
  return plan;
}

}  // namespace hvd
