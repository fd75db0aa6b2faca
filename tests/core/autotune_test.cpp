// Tests tuning in whole contexts with ranks as threads: it changes no result, all ranks agree, and
// it ends.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>
#include <unistd.h>

#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using testing::Each;
using testing::EndsWith;
using testing::Ge;
using testing::Le;
using testing::SizeIs;

constexpr int kTensors = 24;
constexpr std::size_t kElements = 4'096;  // 16 KiB: 4 tensors in a bucket, up to all
constexpr int kMostTrials = 87;

/// A file that is removed afterwards.
class TempFile {
 public:
  explicit TempFile(const std::string& name)
      : path_(std::filesystem::temp_directory_path() /
              ("hvd_" + std::to_string(::getpid()) + "_" + name)) {}
  ~TempFile() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;

  [[nodiscard]] std::string path() const { return path_.string(); }
  [[nodiscard]] std::vector<std::string> lines() const {
    std::ifstream file(path_);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::filesystem::path path_;
};

void step(Context& context, std::vector<std::vector<float>>& data, int number) {
  std::vector<Work> works;
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    auto& mine = data[static_cast<std::size_t>(tensor)];
    std::fill(mine.begin(), mine.end(), static_cast<float>(number % 100 + tensor + context.rank()));
    works.push_back(allreduce_async(
        mine.data(), mine.data(), std::ssize(mine), DType::f32,
        {.name = "g" + std::to_string(tensor), .op = ReduceOp::sum, .context = &context}));
  }
  for (const Work& work : works) work.wait();
  const int size = context.size();
  for (int tensor = 0; tensor < kTensors; ++tensor) {
    const auto expected =
        static_cast<float>(size * (number % 100 + tensor) + size * (size - 1) / 2);
    const auto& sum = data[static_cast<std::size_t>(tensor)];
    ASSERT_EQ(std::count(sum.begin(), sum.end(), expected), std::ssize(sum))
        << "step " << number << " tensor " << tensor << " rank " << context.rank();
  }
}

/// Runs steps on all ranks until rank 0 has logged its choice, with the same number of steps on
/// every rank.
class UntilChosen {
 public:
  UntilChosen(int size, const TempFile& log) : log_(log), meet_(size) {}

  /// Collective. Returns the number of steps.
  int run(Context& context, const std::function<void(int step)>& body) {
    int steps = 0;
    while (!chosen_) {
      for (int i = 0; i < kAtATime; ++i) body(steps++);
      meet_.arrive_and_wait();
      if (context.rank() == 0) {
        const std::vector<std::string> lines = log_.lines();
        chosen_ = (!lines.empty() && ends_with_one(lines.back())) || steps >= kMost;
      }
      meet_.arrive_and_wait();
    }
    EXPECT_LT(steps, kMost) << "the search does not end";
    return steps;
  }

 private:
  static constexpr int kAtATime = 50;
  static constexpr int kMost = 20'000;

  static bool ends_with_one(const std::string& line) {
    return line.size() > 2 && line.substr(line.size() - 2) == ",1";
  }

  const TempFile& log_;
  std::barrier<> meet_;
  bool chosen_ = false;  // written by rank 0 between two meetings
};

/// Runs steps on all ranks until some of them need no control message, since the choice is logged
/// before the ranks learn of it.
class UntilSilent {
 public:
  explicit UntilSilent(int size) : meet_(size) {}

  /// Collective. Returns this rank's counters after the silent steps.
  Stats run(Context& context, const std::function<void(int step)>& body) {
    for (int tries = 0; tries < kMost; ++tries) {
      said_ = false;
      meet_.arrive_and_wait();
      const Stats before = context.stats();
      meet_.arrive_and_wait();
      for (int i = 0; i < kAtATime; ++i) body(i);
      const Stats after = context.stats();
      if (after.control_messages_sent != before.control_messages_sent ||
          after.control_messages_received != before.control_messages_received ||
          after.schedule_hits - before.schedule_hits != kAtATime * kTensors) {
        said_ = true;
      }
      meet_.arrive_and_wait();  // a shutdown request would thaw
      const bool silent = !said_;
      meet_.arrive_and_wait();
      if (silent) return after;
    }
    ADD_FAILURE() << "the ranks go on talking";
    return {};
  }

 private:
  static constexpr int kAtATime = 50;
  static constexpr int kMost = 100;

  std::barrier<> meet_;
  std::atomic<bool> said_ = false;  // by any rank
};

class AutotuneAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, AutotuneAt, testing::Values(1, 2, 3));

TEST_P(AutotuneAt, AllRanksTryTheSameAndItEndsAndThenNothingIsSaid) {
  const int size = GetParam();
  const TempFile log("autotune.csv");
  const std::shared_ptr<Store> store = make_hash_store();
  std::vector<std::uint64_t> freezes(static_cast<std::size_t>(size));
  UntilChosen until_chosen(size, log);
  UntilSilent until_silent(size);
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    config.autotune = true;
    config.autotune_cycles = 2;
    config.autotune_log = log.path();
    const auto context = make_context(config, store);
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(kElements));
    until_chosen.run(*context, [&](int i) { step(*context, data, i); });
    const Stats stats = until_silent.run(*context, [&](int i) { step(*context, data, i); });
    freezes[static_cast<std::size_t>(rank)] = stats.freezes;
  });
  EXPECT_THAT(freezes, Each(freezes.front()));
  EXPECT_GE(freezes.front(), 10U) << "other sizes were tried";

  const std::vector<std::string> lines = log.lines();
  ASSERT_THAT(lines, SizeIs(testing::AllOf(Ge(15U), Le(2U + kMostTrials))));
  EXPECT_EQ(lines.front(), "trial,threshold,edge,cycles,median_us,spread_us,best_us,chosen");
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    EXPECT_EQ(lines[i].find(std::to_string(i) + ","), 0U) << lines[i];
    EXPECT_THAT(lines[i], EndsWith(",0"));
  }
  EXPECT_THAT(lines.back(), EndsWith(",1"));
}

TEST(Autotune, IsOffUnlessAskedFor) {
  const TempFile log("autotune_off.csv");
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(2, [&](int rank) {
    Config config = test::thread_config(rank, 2);
    config.autotune_log = log.path();
    const auto context = make_context(config, store);
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(kElements));
    for (int i = 0; i < 60; ++i) step(*context, data, i);
    EXPECT_EQ(context->stats().freezes, 1U);
  });
  EXPECT_THAT(log.lines(), SizeIs(0));
}

TEST(Autotune, AnAdHocOperationNowAndThenDoesNotDisturbIt) {
  const TempFile log("autotune_ad_hoc.csv");
  const std::shared_ptr<Store> store = make_hash_store();
  UntilChosen until_chosen(2, log);
  test::expect_threads(2, [&](int rank) {
    Config config = test::thread_config(rank, 2);
    config.autotune = true;
    config.autotune_cycles = 4;
    config.autotune_log = log.path();
    const auto context = make_context(config, store);
    std::vector<std::vector<float>> data(kTensors, std::vector<float>(kElements));
    until_chosen.run(*context, [&](int i) {
      step(*context, data, i);
      if (i % 13 != 0) return;
      std::vector<double> metric(1, rank);
      allreduce(
          std::span(metric),
          {.name = "metric" + std::to_string(i), .op = ReduceOp::max, .context = context.get()});
      EXPECT_THAT(metric, Each(1));
    });
  });
  EXPECT_THAT(log.lines().back(), EndsWith(",1"));
}

}  // namespace
}  // namespace hvd
