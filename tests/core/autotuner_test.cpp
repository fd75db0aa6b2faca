// Tests the search with artificial costs and noise.
#include "policy/autotuner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test

constexpr double kMiB = 1 << 20;
constexpr BucketSizes kStart = usual_sizes(std::size_t{16} << 20);

using Cost = std::function<double(const BucketSizes&)>;

double octaves(double a, double b) { return std::abs(std::log2(a / b)); }

/// Returns the cost of the part that is not hidden behind the backward pass: the last bucket.
double tail_of(const BucketSizes& sizes) {
  return static_cast<double>(sizes.edge == 0 ? sizes.threshold : sizes.edge);
}

struct Shape {
  std::string name;
  Cost cost;
};

void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

const Shape kShapes[] = {
    // 100 MB in buckets that cost 50 µs each, with a last bucket at 10 GB/s.
    {"latency_and_tail",
     [](const BucketSizes& sizes) {
       return 0.03 + 5e-5 * 1e8 / static_cast<double>(sizes.threshold) + tail_of(sizes) * 1e-10;
     }},
    {"slow_network",
     [](const BucketSizes& sizes) {
       return 0.03 + 1e-3 * 1e8 / static_cast<double>(sizes.threshold) + tail_of(sizes) * 2e-9;
     }},
    {"valley_at_1_MiB",
     [](const BucketSizes& sizes) {
       return 0.01 * (1 + 0.06 * octaves(static_cast<double>(sizes.threshold), kMiB));
     }},
    {"two_valleys",
     [](const BucketSizes& sizes) {
       const auto threshold = static_cast<double>(sizes.threshold);
       return 0.01 * (1 + std::min(0.1 * octaves(threshold, kMiB / 4),
                                   0.15 + 0.1 * octaves(threshold, 16 * kMiB)));
     }},
    {"the_more_the_better",
     [](const BucketSizes& sizes) { return 0.02 + 2e3 / static_cast<double>(sizes.threshold); }},
    {"no_edge", [](const BucketSizes& sizes) { return sizes.edge == 0 ? 0.02 : 0.024; }},
    {"small_edges_of_large_buckets",
     [](const BucketSizes& sizes) {
       return 0.02 * (1 + 0.03 * octaves(static_cast<double>(sizes.threshold), 64 * kMiB) +
                      0.05 * octaves(tail_of(sizes), kMiB));
     }},
};

struct Noise {
  double of_trial = 0;    ///< standard deviation, as part of the step time
  double hiccups = 0.03;  ///< share of the trials that take half as long again
};

/// A machine that becomes slower by a tenth during the search.
class Machine {
 public:
  Machine(Cost cost, const Noise& noise, unsigned seed)
      : cost_(std::move(cost)), noise_(noise), random_(seed) {}

  double measure(const BucketSizes& sizes) {
    double normal = -6;  // sum of twelve, the same in every standard library
    for (int i = 0; i < 12; ++i) normal += uniform();
    const double hiccup = uniform() < noise_.hiccups ? 1.5 : 1;
    const double drift = 1 + 0.1 * std::min(1.0, trials_++ / 50.0);
    return cost_(sizes) * (1 + noise_.of_trial * normal) * hiccup * drift;
  }

 private:
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }

  Cost cost_;
  Noise noise_;
  std::mt19937_64 random_;
  int trials_ = 0;
};

/// Returns the measured sizes; the last of them is the choice.
std::vector<BucketSizes> search(const Cost& cost, const Noise& noise, unsigned seed,
                                std::size_t cycle_bytes = 0) {
  Machine machine(cost, noise, seed);
  Autotuner tuner({kStart, cycle_bytes});
  std::vector<BucketSizes> measured;
  while (const auto sizes = tuner.propose()) {
    measured.push_back(*sizes);
    if (std::ssize(measured) > Autotuner::kMaxTrials) {
      ADD_FAILURE() << "the search does not end";
      break;
    }
    tuner.measured(machine.measure(*sizes));
  }
  measured.push_back(tuner.best());
  return measured;
}

double least(const Cost& cost) {
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t threshold = 64 << 10; threshold <= 256 << 20; threshold *= 2) {
    for (const std::size_t part : {0, 2, 4, 16, 64}) {
      best = std::min(best, cost({threshold, part == 0 ? 0 : threshold / part}));
    }
  }
  return best;
}

class AutotunerFinds : public testing::TestWithParam<Shape> {};
INSTANTIATE_TEST_SUITE_P(Shapes, AutotunerFinds, testing::ValuesIn(kShapes),
                         [](const auto& shape) { return shape.param.name; });

TEST_P(AutotunerFinds, WhatIsWithinFivePercentOfTheBest) {
  const Cost& cost = GetParam().cost;
  for (const double hiccups : {0.0, 0.03}) {
    std::vector<unsigned> missed;
    for (unsigned seed = 0; seed < 50; ++seed) {
      const BucketSizes choice = search(cost, {0.01, hiccups}, seed).back();
      if (cost(choice) > 1.05 * least(cost)) missed.push_back(seed);
    }
    EXPECT_THAT(missed, testing::SizeIs(testing::Le(hiccups == 0 ? 0U : 3U)));
  }
}

TEST_P(AutotunerFinds, TheSameFromTheSameMeasurements) {
  EXPECT_EQ(search(GetParam().cost, {0.05}, 7), search(GetParam().cost, {0.05}, 7));
}

TEST_P(AutotunerFinds, NothingWorseThanTheStartHoweverNoisy) {
  const Cost& cost = GetParam().cost;
  for (unsigned seed = 0; seed < 50; ++seed) {
    EXPECT_LE(cost(search(cost, {0.05}, seed).back()), 1.02 * cost(kStart)) << "seed " << seed;
  }
}

TEST(Autotuner, KeepsTheStartWhenNothingIsBetter) {
  const Cost flat = [](const BucketSizes&) { return 0.1; };
  int moved = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    EXPECT_EQ(search(flat, {0}, seed).back(), kStart) << "seed " << seed;
    EXPECT_EQ(search(flat, {0.01}, seed).back(), kStart) << "seed " << seed;
    if (search(flat, {0.05}, seed).back() != kStart) ++moved;
  }
  EXPECT_LE(moved, 20) << "of 200";
}

TEST(Autotuner, KeepsTheStartWhenTheGainIsBelowTheMargin) {
  const Cost hardly = [](const BucketSizes& sizes) { return sizes == kStart ? 0.1 : 0.099; };
  for (unsigned seed = 0; seed < 50; ++seed) {
    EXPECT_EQ(search(hardly, {0.005}, seed).back(), kStart) << "seed " << seed;
  }
}

TEST(Autotuner, NeedsNoMoreTrialsThanItSays) {
  std::size_t most = 0;
  for (const Shape& shape : kShapes) {
    for (unsigned seed = 0; seed < 50; ++seed) {
      most = std::max(most, search(shape.cost, {0.05}, seed).size() - 1);
    }
  }
  EXPECT_EQ(most, static_cast<std::size_t>(Autotuner::kMaxTrials));
}

TEST(Autotuner, MeasuresNoThresholdThatCannotMatter) {
  for (const BucketSizes& sizes : search(kShapes[2].cost, {0.01}, 1, 3 << 20)) {
    EXPECT_TRUE(sizes.threshold <= 4 << 20 || sizes == kStart) << sizes.threshold;
  }
}

TEST(Autotuner, LeavesOffWhatIsOff) {
  const Autotuner tuner({BucketSizes{}, 0});
  EXPECT_TRUE(tuner.finished());
  EXPECT_FALSE(tuner.propose());
  EXPECT_EQ(tuner.best(), BucketSizes{});
}

TEST(Autotuner, SaysHowMuchItGained) {
  Autotuner tuner({kStart, 0});
  while (const auto sizes = tuner.propose()) {
    tuner.measured(sizes->threshold == std::size_t{1} << 20 ? 0.5 : 1);
  }
  EXPECT_EQ(tuner.best().threshold, std::size_t{1} << 20);
  EXPECT_DOUBLE_EQ(tuner.best_ratio(), 0.5);
  EXPECT_DOUBLE_EQ(tuner.best_seconds(), 0.5);
}

}  // namespace
}  // namespace hvd
