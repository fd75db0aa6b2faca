#include "elastic/plan.hpp"

#include <algorithm>
#include <array>
#include <chrono>

namespace hvd::sim::elastic {
namespace {

using std::chrono::milliseconds;

/// Three of ten faults follow another one closely.
void add_faults(Plan& plan, Random& random) {
  const int count = random.chance(10) ? 0 : random.number(1, 3);
  std::uint64_t boundary = 0;
  for (int i = 0; i < count; ++i) {
    FaultPlan fault;
    fault.kind = static_cast<FaultKind>(random.number(0, kFaultKinds - 1));
    const bool follows = i > 0 && random.chance(40);
    boundary = follows ? boundary + static_cast<std::uint64_t>(random.number(0, 12))
                       : static_cast<std::uint64_t>(random.spread(1, 600));
    fault.boundary = boundary;
    fault.victim = random.number(0, 1'000);
    fault.length = random.spread(10 * kMilli, 60 * kSecond);
    plan.faults.push_back(fault);
  }
  std::stable_sort(plan.faults.begin(), plan.faults.end(),
                   [](const auto& a, const auto& b) { return a.boundary < b.boundary; });
}

}  // namespace

const char* to_string(FaultKind kind) {
  constexpr std::array<const char*, kFaultKinds> kNames{
      "crash",      "throws",    "pause", "freeze", "cut",       "cut for ever",
      "agent lost", "host lost", "slow",  "leave",  "host gone", "new slots"};
  return kNames.at(static_cast<std::size_t>(kind));
}

Plan draw_plan(Random& random, int ranks) {
  Plan plan;
  const int size = ranks > 0 ? ranks : random.number(1, 8);
  const int hosts = random.number(1, std::min(size, 4));
  plan.slots.assign(static_cast<std::size_t>(hosts), 1);
  for (int i = hosts; i < size; ++i) {
    ++plan.slots[static_cast<std::size_t>(random.number(0, hosts - 1))];
  }
  plan.options.min_np = random.chance(60) ? 1 : random.number(1, size);
  plan.options.max_np = random.chance(50) ? size : size + random.number(1, 4);
  plan.options.timeout = milliseconds(random.number(20, 90) * 1'000);
  if (random.chance(10)) plan.options.reset_limit = random.number(0, 4);
  if (random.chance(50)) plan.options.most_cooldown = milliseconds(random.number(1, 60) * 1'000);
  plan.epochs = random.number(1, 3);
  plan.samples = random.number(size, kMostSamples);
  plan.batch = random.number(1, 3);
  plan.certain = random.chance(75);
  plan.commit_every = random.number(1, 4);
  plan.mirrored = plan.certain && random.chance(30);
  add_faults(plan, random);
  return plan;
}

}  // namespace hvd::sim::elastic
