// Random collectives on every engine of host memory and 1 to 9 ranks, against a serial reference.
// HVD_PROPERTY_CASES sets how many in all, HVD_PROPERTY_SEED which one comes first.
#include <cstdlib>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include <hvd/core/topology.hpp>
#include <hvd/ops/backends.hpp>

#include "host/host_ranks.hpp"
#include "property/random_case.hpp"
#include "transports.hpp"

namespace hvd::test {
namespace {

constexpr std::uint64_t kInstances = 6 * 9;  // engines and numbers of ranks
constexpr std::uint64_t kBatch = 100;        // cases between two starts of the engine

std::uint64_t number_from_environment(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

using BackendBody =
    std::function<void(int rank, Backend& backend, const std::shared_ptr<Arena>& arena)>;

enum class Made { ring, hosts, host_private, host_arena };

/// A name, what it is, and the transport below unless it brings its own.
struct Engine {
  std::string name;
  Made made;
  Kind kind = Kind::in_process;

  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) {
    return out << engine.name;
  }

  /// `body` on a thread per rank.
  void run(int ranks, std::uint64_t seed, const BackendBody& body) const {
    if (made == Made::ring || made == Made::hosts) {
      return expect_ranks(kind, ranks, [&](int rank, std::unique_ptr<Transport> transport) {
        body(rank, *make(std::move(transport), seed), nullptr);
      });
    }
    expect_host_ranks(ranks, [&](int rank, HostEngine& engine) {
      body(rank, *engine.backend, made == Made::host_arena ? engine.arena : nullptr);
    });
  }

 private:
  [[nodiscard]] std::unique_ptr<Backend> make(std::unique_ptr<Transport> transport,
                                              std::uint64_t seed) const {
    Topology topology;
    topology.rank = transport->rank();
    topology.size = transport->size();
    auto ring = make_ring_backend(std::move(transport));
    if (made == Made::ring) return ring;
    // Any distribution, numbered by first ranks.
    int hosts = 0;
    for (int rank = 0; rank < topology.size; ++rank) {
      const auto host = static_cast<int>((seed + static_cast<std::uint64_t>(rank * rank)) % 3);
      topology.host_of.push_back(std::min(host, hosts));
      if (topology.host_of.back() == hosts) ++hosts;
    }
    return make_hierarchical_backend(std::move(ring), nullptr, topology, soon());
  }
};

class Property : public testing::TestWithParam<std::tuple<Engine, int>> {};
INSTANTIATE_TEST_SUITE_P(Engines, Property,
                         testing::Combine(testing::Values(Engine{"in_process", Made::ring},
                                                          Engine{"tcp", Made::ring, Kind::tcp},
                                                          Engine{"shm", Made::ring, Kind::shm},
                                                          Engine{"hosts", Made::hosts},
                                                          Engine{"private", Made::host_private},
                                                          Engine{"arena", Made::host_arena}),
                                          testing::Range(1, 10)),
                         [](const testing::TestParamInfo<std::tuple<Engine, int>>& one) {
                           return std::get<0>(one.param).name + "_" +
                                  std::to_string(std::get<1>(one.param));
                         });

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
    std::mutex mutex;
    std::vector<std::vector<std::vector<Buffer>>> results(batch.size());
    for (auto& of_case : results) of_case.resize(static_cast<std::size_t>(ranks));
    engine.run(ranks, batch.front().seed, [&](int rank, Backend& backend, const auto& arena) {
      for (std::size_t c = 0; c < batch.size(); ++c) {
        std::vector<Buffer> result = run_case(backend, rank, batch[c], arena);
        if (c % 4 == 0) {
          EXPECT_EQ(run_case(backend, rank, batch[c], arena), result)
              << batch[c].text() << ": other bits the second time";
        }
        const std::lock_guard lock(mutex);
        results[c][static_cast<std::size_t>(rank)] = std::move(result);
      }
    });
    for (std::size_t c = 0; c < batch.size() && !HasFailure(); ++c) {
      SCOPED_TRACE(batch[c].text() + "; alone: HVD_PROPERTY_CASES=1 HVD_PROPERTY_SEED=" +
                   std::to_string(batch[c].seed));
      check_case(batch[c], results[c]);
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace hvd::test
