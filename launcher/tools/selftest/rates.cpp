#include "rates.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <span>

namespace hvd::selftest {
namespace {

constexpr std::size_t kMessage = std::size_t{8} << 20;
constexpr int kMessages = 3;  // the first warms up
constexpr std::size_t kLarge = std::size_t{16} << 20;
constexpr int kLargeRounds = 4;
constexpr int kSmallRounds = 51;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<int> first_ranks(const Topology& topology, int host, std::size_t most) {
  std::vector<int> ranks;
  for (int rank = 0; rank < topology.size && ranks.size() < most; ++rank) {
    if (topology.host_of[static_cast<std::size_t>(rank)] == host) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::vector<Pair> pairs_to_measure(const Topology& topology) {
  constexpr int kFew = 8;
  std::vector<Pair> pairs;
  if (topology.size <= kFew) {
    for (int from = 0; from < topology.size; ++from) {
      for (int to = from + 1; to < topology.size; ++to) pairs.push_back({from, to});
    }
    return pairs;
  }
  const int hosts = *std::max_element(topology.host_of.begin(), topology.host_of.end()) + 1;
  const auto all_pairs = static_cast<std::size_t>(hosts) * static_cast<std::size_t>(hosts - 1) / 2;
  for (int host = 0; host < hosts; ++host) {
    const auto here = first_ranks(topology, host, 2);
    if (here.size() == 2) pairs.push_back({here[0], here[1]});
    const int last = all_pairs <= kMostPairs / 2 ? hosts - 1 : std::min(host + 1, hosts - 1);
    for (int other = host + 1; other <= last; ++other) {
      pairs.push_back({here[0], first_ranks(topology, other, 1)[0]});
    }
  }
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);
  return pairs;
}

std::vector<PairRate> measure_pairs(Context& context) {
  const std::vector<Pair> pairs = pairs_to_measure(context.topology());
  std::vector<double> rates(pairs.size(), 0.0);
  std::vector<std::byte> message(kMessage);
  const auto count = static_cast<std::int64_t>(message.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    barrier({.context = &context});
    for (int round = 0; round < kMessages; ++round) {
      if (context.rank() == pairs[i].from) {
        send(message.data(), count, DType::u8, pairs[i].to,
             {.name = "selftest", .context = &context});
      } else if (context.rank() == pairs[i].to) {
        const auto begin = Clock::now();
        recv(message.data(), count, DType::u8, pairs[i].from,
             {.name = "selftest", .context = &context});
        const double rate = static_cast<double>(kMessage) / std::max(seconds_since(begin), 1e-9);
        if (round > 0) rates[i] = std::max(rates[i], rate);
      }
    }
  }
  if (!rates.empty()) allreduce(std::span(rates), {.op = ReduceOp::max, .context = &context});
  std::vector<PairRate> result;
  for (std::size_t i = 0; i < pairs.size(); ++i) result.push_back({pairs[i], rates[i]});
  return result;
}

AllreduceRate measure_allreduce(Context& context) {
  std::vector<double> small;
  std::vector<float> one(1);
  for (int round = 0; round < kSmallRounds; ++round) {
    const auto begin = Clock::now();
    allreduce(std::span(one), {.name = "small", .op = ReduceOp::sum, .context = &context});
    small.push_back(seconds_since(begin));
  }
  std::nth_element(small.begin(), small.begin() + kSmallRounds / 2, small.end());
  std::vector<float> large(kLarge / sizeof(float));
  double best = 1e9;
  for (int round = 0; round < kLargeRounds; ++round) {
    const auto begin = Clock::now();
    allreduce(std::span(large), {.name = "large", .op = ReduceOp::sum, .context = &context});
    best = std::min(best, seconds_since(begin));
  }
  // The times of the slowest rank count.
  std::vector<double> times = {small[kSmallRounds / 2], best};
  allreduce(std::span(times), {.op = ReduceOp::max, .context = &context});
  return {times[0], static_cast<double>(kLarge) / std::max(times[1], 1e-9)};
}

}  // namespace hvd::selftest
