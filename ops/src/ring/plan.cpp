#include "ring/plan.hpp"

#include <algorithm>

#include <hvd/core/internal/all_ranks.hpp>

namespace hvd::detail {

bool RingOrder::is_by_rank() const { return std::is_sorted(ranks.begin(), ranks.end()); }

RingOrder order_by_host(std::span<const int> host_of) {
  RingOrder order{.ranks = all_ranks(static_cast<int>(host_of.size())),
                  .positions = std::vector<int>(host_of.size())};
  std::stable_sort(order.ranks.begin(), order.ranks.end(), [&](int a, int b) {
    return host_of[static_cast<std::size_t>(a)] < host_of[static_cast<std::size_t>(b)];
  });
  for (int position = 0; position < std::ssize(order.ranks); ++position) {
    const int rank = order.ranks[static_cast<std::size_t>(position)];
    order.positions[static_cast<std::size_t>(rank)] = position;
  }
  return order;
}

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

RingPlan plan_ring(const RingOrder& order, int rank) {
  const auto rank_at = [&](int position) {
    return order.ranks[static_cast<std::size_t>(position)];
  };
  RingPlan plan = plan_ring(order.positions[static_cast<std::size_t>(rank)],
                            static_cast<int>(order.ranks.size()));
  plan.next = rank_at(plan.next);
  plan.previous = rank_at(plan.previous);
  for (std::vector<RingStep>* const steps : {&plan.reduce_scatter, &plan.all_gather}) {
    for (RingStep& step : *steps) step = {rank_at(step.send), rank_at(step.receive)};
  }
  return plan;
}

}  // namespace hvd::detail
