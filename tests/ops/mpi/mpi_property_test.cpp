// Compares random collectives, over MPI in every way, with the serial reference; runs under mpirun.
#include <vector>

#include <gtest/gtest.h>

#include "mpi_ways.hpp"
#include "property/random_case.hpp"

namespace hvd::test {
namespace {

constexpr std::uint64_t kCases = 150;

/// Gathers `own` of every rank, by rank.
std::vector<Buffer> gather(const Buffer& own) {
  const auto ranks = static_cast<std::size_t>(world_size());
  const int size = static_cast<int>(own.size());
  std::vector<int> sizes(ranks);
  MPI_Allgather(&size, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD);
  std::vector<int> begins(ranks + 1);
  for (std::size_t rank = 0; rank < ranks; ++rank) begins[rank + 1] = begins[rank] + sizes[rank];
  Buffer all(static_cast<std::size_t>(begins.back()));
  MPI_Allgatherv(own.data(), size, MPI_BYTE, all.data(), sizes.data(), begins.data(), MPI_BYTE,
                 MPI_COMM_WORLD);
  std::vector<Buffer> parts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    parts.emplace_back(all.begin() + begins[rank], all.begin() + begins[rank + 1]);
  }
  return parts;
}

/// Gathers the buffers of every rank, by rank and tensor.
std::vector<std::vector<Buffer>> gather(const std::vector<Buffer>& own) {
  std::vector<std::vector<Buffer>> all(static_cast<std::size_t>(world_size()));
  for (const Buffer& tensor : own) {
    std::vector<Buffer> parts = gather(tensor);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
      all[rank].push_back(std::move(parts[rank]));
    }
  }
  return all;
}

class MpiPropertyTest : public testing::TestWithParam<Way> {};

INSTANTIATE_TEST_SUITE_P(Ways, MpiPropertyTest,
                         testing::Values(Way::collective, Way::ring, Way::chosen,
                                         Way::hierarchical),
                         [](const auto& way) { return to_string(way.param); });

TEST_P(MpiPropertyTest, RandomCollectivesAreRightAndTheSameBitsEverywhereAndTwice) {
  const auto backend = make_backend(GetParam());
  for (std::uint64_t seed = 1; seed <= kCases && !HasFailure(); ++seed) {
    const RandomCase drawn = draw_case(seed, world_size());
    SCOPED_TRACE(drawn.text());
    const std::vector<Buffer> result = run_case(*backend, world_rank(), drawn, nullptr);
    EXPECT_EQ(run_case(*backend, world_rank(), drawn, nullptr), result)
        << "other bits the second time";
    check_case(drawn, gather(result));
  }
}

}  // namespace
}  // namespace hvd::test
