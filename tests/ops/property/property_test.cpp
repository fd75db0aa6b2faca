// Compares random collectives on every engine of host memory, with 1 to 9 ranks, with a serial
// reference. HVD_PROPERTY_CASES sets their number, HVD_PROPERTY_SEED the first one.
#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <span>
#include <string>

#include <gtest/gtest.h>

#include "property/random_case.hpp"
#include "support/engines.hpp"

namespace hvd::test {
namespace {

constexpr std::uint64_t kInstances = 6 * 9;  // engines and numbers of ranks
constexpr std::uint64_t kBatch = 100;        // cases between two starts of the engine
constexpr std::size_t kAgain = 5;            // cases that a second start of it repeats

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Property : public testing::TestWithParam<std::tuple<Engine, int>> {};
INSTANTIATE_TEST_SUITE_P(
    Engines, Property,
    testing::Combine(testing::Values(Engine{"in_process", Engine::Made::ring},
                                     Engine{"tcp", Engine::Made::ring, Kind::tcp},
                                     Engine{"hosts", Engine::Made::hosts},
                                     Engine{"private", Engine::Made::host_private},
                                     Engine{"arena", Engine::Made::host_arena}),
                     testing::Range(1, 10)),
    [](const testing::TestParamInfo<std::tuple<Engine, int>>& one) {
      return std::get<0>(one.param).name + "_" + std::to_string(std::get<1>(one.param));
    });

/// By case, rank and tensor.
using Results = std::vector<std::vector<std::vector<Buffer>>>;

/// Runs the cases with one start of the engine. Every fourth case runs twice and must give the same
/// bits.
Results run_cases(const Engine& engine, int ranks, std::span<const RandomCase> cases) {
  std::mutex mutex;
  Results results(cases.size());
  for (auto& of_case : results) of_case.resize(static_cast<std::size_t>(ranks));
  engine.run(ranks, cases.front().seed, [&](int rank, Backend& backend, const auto& arena) {
    for (std::size_t c = 0; c < cases.size(); ++c) {
      std::vector<Buffer> result = run_case(backend, rank, cases[c], arena);
      if (c % 4 == 0) {
        EXPECT_EQ(run_case(backend, rank, cases[c], arena), result)
            << cases[c].text() << ": other bits the second time";
      }
      const std::lock_guard lock(mutex);
      results[c][static_cast<std::size_t>(rank)] = std::move(result);
    }
  });
  return results;
}

TEST_P(Property, RandomCollectivesAreRightAndTheSameBitsEverywhereAndTwice) {
  const Engine& engine = std::get<0>(GetParam());
  const int ranks = std::get<1>(GetParam());
  const std::uint64_t cases =
      (number_from_environment("HVD_PROPERTY_CASES", 10'000) + kInstances - 1) / kInstances;
  std::uint64_t seed = number_from_environment("HVD_PROPERTY_SEED", 1);
  for (std::uint64_t done = 0; done < cases; done += kBatch) {
    std::vector<RandomCase> batch;
    for (std::uint64_t i = done; i < std::min(cases, done + kBatch); ++i) {
      batch.push_back(draw_case(seed++, ranks));
    }
    const Results results = run_cases(engine, ranks, batch);
    for (std::size_t c = 0; c < batch.size() && !HasFailure(); ++c) {
      SCOPED_TRACE(batch[c].text() + "; alone: HVD_PROPERTY_CASES=1 HVD_PROPERTY_SEED=" +
                   std::to_string(batch[c].seed));
      check_case(batch[c], results[c]);
    }
    if (HasFailure()) return;
    if (done > 0) continue;
    // Repeats the same job with other threads, connections and memory, which must give the same
    // bits.
    batch.resize(std::min(batch.size(), kAgain));
    const Results again = run_cases(engine, ranks, batch);
    for (std::size_t c = 0; c < batch.size(); ++c) {
      ASSERT_TRUE(again[c] == results[c]) << batch[c].text() << ": other bits in another job";
    }
  }
}

}  // namespace
}  // namespace hvd::test
