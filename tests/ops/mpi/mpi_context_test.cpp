// Tests contexts of communicators in a program that uses MPI itself; runs under mpirun.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/mpi.hpp>

#include "support/context_checks.hpp"

namespace hvd::test {
namespace {

using std::chrono::seconds;

/// The program's own use of MPI, for all tests.
class ProgramsMpi : public testing::Environment {
 public:
  void SetUp() override { MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level_); }
  void TearDown() override { MPI_Finalize(); }
  [[nodiscard]] int level() const { return level_; }

 private:
  int level_ = MPI_THREAD_SINGLE;
};

ProgramsMpi& programs_mpi() {
  static auto* const environment = new ProgramsMpi;  // owned by GoogleTest
  return *environment;
}
[[maybe_unused]] const auto* const kRegistered = testing::AddGlobalTestEnvironment(&programs_mpi());

/// A communicator of the program.
class Comm {
 public:
  static Comm split(int color, int key) {
    Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, color, key, &made.comm_);
    return made;
  }
  Comm(Comm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  Comm& operator=(Comm&&) = delete;
  ~Comm() { free(); }

  void free() {
    if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
  }
  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const {
    int value = 0;
    MPI_Comm_rank(comm_, &value);
    return value;
  }
  [[nodiscard]] int size() const {
    int value = 0;
    MPI_Comm_size(comm_, &value);
    return value;
  }

 private:
  Comm() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

/// The backend is the parameter.
class MpiContextTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (programs_mpi().level() < MPI_THREAD_MULTIPLE) {
      GTEST_SKIP() << "needs an MPI with MPI_THREAD_MULTIPLE";
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }

  static Config config() {
    Config settings;
    settings.backend = GetParam();
    settings.start_timeout = seconds(30);
    settings.collective_timeout = seconds(30);
    settings.shutdown_timeout = seconds(30);
    settings.peer_timeout = seconds(20);  // sanitizers and a loaded machine
    return settings;
  }

  /// Runs the check in a context of the whole world.
  void on_context(void (*check)(Context&)) const {
    const Comm everyone = Comm::split(0, rank_);
    const auto context = make_context(config(), everyone.get());
    check(*context);
    context->shutdown();
  }

  int rank_ = 0;  // in the world
  int size_ = 1;
};

INSTANTIATE_TEST_SUITE_P(Backends, MpiContextTest, testing::Values("mpi", "native"),
                         [](const auto& backend) { return backend.param; });

/// Returns the sum of every rank's `value` in an array of `count` elements.
float sum_of(Context& context, float value, std::size_t count = 1'000) {
  std::vector<float> data(count, value);
  allreduce(std::span<float>(data), {.op = ReduceOp::sum, .context = &context});
  EXPECT_EQ(std::count(data.begin(), data.end(), data.front()), static_cast<std::ptrdiff_t>(count));
  return data.front();
}

TEST_P(MpiContextTest, RanksAreThoseOfTheCommunicator) {
  const Comm reversed = Comm::split(0, size_ - rank_);
  const auto context = make_context(config(), reversed.get());
  EXPECT_EQ(context->rank(), reversed.rank());
  EXPECT_EQ(context->rank(), size_ - 1 - rank_);
  EXPECT_EQ(context->size(), size_);
  std::array<int, 1> root{rank_};
  broadcast(root.data(), 1, DType::i32, 0, {.context = context.get()});
  EXPECT_EQ(root[0], size_ - 1) << "rank 0 is the world's last";
  context->shutdown();
}

TEST_P(MpiContextTest, Allreduce) { on_context(check_allreduce); }
TEST_P(MpiContextTest, Broadcast) { on_context(check_broadcast); }
TEST_P(MpiContextTest, Allgather) { on_context(check_allgather); }
TEST_P(MpiContextTest, ArraysOfEveryType) { on_context(check_arrays); }
TEST_P(MpiContextTest, ArraysInSetsOfRanks) { on_context(check_process_sets); }
TEST_P(MpiContextTest, GroupsOfEveryOperation) { on_context(check_groups); }
TEST_P(MpiContextTest, ReductionsOfTheProgramsOwn) { on_context(check_own_reductions); }
TEST_P(MpiContextTest, Messages) { on_context(check_messages); }

TEST_P(MpiContextTest, DisjointCommunicatorsAreJobsOfTheirOwn) {
  const int color = rank_ % 2;
  const Comm half = Comm::split(color, rank_);
  const auto context = make_context(config(), half.get());
  EXPECT_EQ(context->size(), half.size());
  const float value = color == 0 ? 1.0F : 100.0F;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sum_of(*context, value), value * static_cast<float>(half.size()));
  }

  std::array<char, 129> job{};
  context->config().job_id.copy(job.data(), job.size() - 1);
  std::vector<char> jobs(job.size() * static_cast<std::size_t>(size_));
  MPI_Allgather(job.data(), static_cast<int>(job.size()), MPI_CHAR, jobs.data(),
                static_cast<int>(job.size()), MPI_CHAR, MPI_COMM_WORLD);
  for (int other = 0; other < size_; ++other) {
    const std::string theirs = jobs.data() + job.size() * static_cast<std::size_t>(other);
    EXPECT_EQ(theirs == context->config().job_id, other % 2 == color) << "rank " << other;
  }
  context->shutdown();
}

TEST_P(MpiContextTest, TheRestOfTheWorldGoesOnComputing) {
  const bool trains = rank_ < (size_ + 1) / 2;
  const Comm part = Comm::split(trains ? 0 : 1, rank_);
  const auto simulate = [&](MPI_Comm comm, int ranks) {
    for (int i = 0; i < 200; ++i) {
      int sum = i;
      MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
      EXPECT_EQ(sum, i * ranks);
    }
  };
  if (!trains) return simulate(part.get(), part.size());

  const auto context = make_context(config(), part.get());
  // The ranks that train also simulate, at the same time.
  std::thread simulation(simulate, part.get(), part.size());
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(sum_of(*context, 2.0F, i % 2 == 0 ? 3 : 100'000),
              2.0F * static_cast<float>(part.size()));
  }
  simulation.join();
  context->shutdown();
}

TEST_P(MpiContextTest, OverlappingContextsOfOneProcessDoNotMix) {
  const Comm everyone = Comm::split(0, rank_);
  const Comm alone = Comm::split(rank_, 0);
  const auto all = make_context(config(), everyone.get());
  const auto one = make_context(config(), alone.get());
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(sum_of(*all, 1.0F), static_cast<float>(size_));
    EXPECT_EQ(sum_of(*one, 7.0F), 7.0F);
  }
  one->shutdown();
  EXPECT_EQ(sum_of(*all, 1.0F), static_cast<float>(size_));
  all->shutdown();
}

TEST_P(MpiContextTest, TheCommunicatorMayBeFreedAtOnce) {
  Comm comm = Comm::split(0, rank_);
  const auto context = make_context(config(), comm.get());
  comm.free();
  EXPECT_EQ(sum_of(*context, 1.0F), static_cast<float>(size_));
  context->shutdown();
}

TEST_P(MpiContextTest, TheDefaultContextCanBeOfACommunicatorAgainAndAgain) {
  for (int i = 0; i < 3; ++i) {
    const Comm comm = Comm::split(0, i == 1 ? -rank_ : rank_);
    init(comm.get(), config());
    EXPECT_EQ(rank(), comm.rank());
    EXPECT_EQ(size(), size_);
    EXPECT_EQ(sum_of(context(), 1.0F), static_cast<float>(size_));
    shutdown();
    EXPECT_FALSE(is_initialized());
  }
}

Errc code_of(MPI_Comm comm) {
  try {
    static_cast<void>(make_context(Config{}, comm));
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::internal;
}

TEST_P(MpiContextTest, WhatIsNoGroupOfRanksIsRefused) {
  EXPECT_EQ(code_of(MPI_COMM_NULL), Errc::invalid_argument);
  if (size_ < 2) return;
  const Comm half = Comm::split(rank_ % 2, rank_);
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(half.get(), 0, MPI_COMM_WORLD, 1 - rank_ % 2, 0, &between);
  EXPECT_EQ(code_of(between), Errc::invalid_argument);
  MPI_Comm_free(&between);
}

}  // namespace
}  // namespace hvd::test
