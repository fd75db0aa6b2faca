// Runs under mpirun, and alone as a process without a launcher.
#include <cstdlib>
#include <string>

#include <gmock/gmock.h>
#include <mpi.h>

#include <hvd/core/internal/store_server.hpp>

#include "expect_error.hpp"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::expect_error;
using test::in;
using test::soon;

int environment_rank() {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank == nullptr ? 0 : std::atoi(rank);
}

TEST(PmixStore, EveryRankReadsWhatRank0Set) {
  for (int round = 0; round < 3; ++round) {  // sessions of one process, each with keys of its own
    const auto store = connect_pmix_store(Config());
    ASSERT_NE(store, nullptr);
    const std::string key = std::to_string(round) + "/address";
    const std::string value = "round " + std::to_string(round);
    if (environment_rank() == 0) store->set(key, bytes_of(value), soon());
    EXPECT_EQ(store->wait(key, soon()), bytes_of(value));
    EXPECT_EQ(store->get(key, soon()), bytes_of(value));
  }
}

TEST(PmixStore, BytesOfAnyValueTravel) {
  const auto store = connect_pmix_store(Config());
  ASSERT_NE(store, nullptr);
  Bytes value(256);
  for (std::size_t i = 0; i < value.size(); ++i) value[i] = static_cast<std::byte>(i);
  if (environment_rank() == 0) store->set("bytes", value, soon());
  EXPECT_EQ(store->wait("bytes", soon()), value);
}

TEST(PmixStore, AKeyThatNobodySetsIsATimeoutThatNamesIt) {
  const auto store = connect_pmix_store(Config());
  ASSERT_NE(store, nullptr);
  const std::string text =
      expect_error(Errc::timeout, [&] { static_cast<void>(store->wait("never", in(100ms))); });
  EXPECT_THAT(text, testing::HasSubstr("never"));
  EXPECT_EQ(store->get("never", soon()), std::nullopt);
}

TEST(PmixStore, OnlyRank0Sets) {
  const auto store = connect_pmix_store(Config());
  ASSERT_NE(store, nullptr);
  if (environment_rank() == 0) {
    expect_error(Errc::invalid_argument, [&] { store->set("big", Bytes(1 << 16), soon()); });
  } else {
    expect_error(Errc::unsupported, [&] { store->set("mine", {}, soon()); });
  }
}

// A program may use MPI itself after hvd has found its peers, and hvd again afterwards.
TEST(PmixStore, LivesTogetherWithMpi) {
  ASSERT_NE(connect_pmix_store(Config()), nullptr);
  ASSERT_EQ(MPI_Init(nullptr, nullptr), MPI_SUCCESS);
  int rank = -1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  EXPECT_EQ(rank, environment_rank());
  const auto store = connect_pmix_store(Config());
  ASSERT_NE(store, nullptr);
  if (rank == 0) store->set("with-mpi", bytes_of("yes"), soon());
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  EXPECT_EQ(store->wait("with-mpi", soon()), bytes_of("yes"));
}

}  // namespace
}  // namespace hvd
