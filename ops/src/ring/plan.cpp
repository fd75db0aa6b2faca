#include "ring/plan.hpp"

namespace hvd {

RingPlan plan_ring(int rank, int size) {
  const auto chunk = [&](int steps_back) { return (rank - steps_back + 2 * size) % size; };
  RingPlan plan{
      .next = (rank + 1) % size, .previous = chunk(1), .reduce_scatter = {}, .all_gather = {}};
  for (int step = 0; step + 1 < size; ++step) {
    plan.reduce_scatter.push_back({.send = chunk(step + 1), .receive = chunk(step + 2)});
    plan.all_gather.push_back({.send = chunk(step), .receive = chunk(step + 1)});
  }
  return plan;
}

}  // namespace hvd
