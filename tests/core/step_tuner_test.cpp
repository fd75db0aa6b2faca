#include "engine/step_tuner.hpp"

#include <algorithm>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>

namespace hvd {
namespace {

using namespace detail;  // NOLINT: a test
using std::chrono::milliseconds;

FrozenSchedule plan_of(std::int64_t elements) {
  FrozenSchedule plan;
  PlannedBatch& batch = plan.batches.emplace_back();
  Request& request = batch.requests.emplace_back();
  request.name = "g";
  request.shape = {elements};
  return plan;
}

constexpr BucketSizes kStart = usual_sizes(std::size_t{16} << 20);

class StepTunerTest : public testing::Test {
 protected:
  /// Runs `cycles` cycles of two collectives, each of `cycle_time`. Returns whether a trial has
  /// ended.
  bool run(std::uint32_t epoch, int cycles) {
    bool over = false;
    for (int i = 0; i < cycles; ++i, ++cycle_) {
      for (int turn = 0; turn < 2; ++turn) {
        over = tuner_.turn(epoch, cycle_, now_) || over;
        now_ += cycle_time_ / 2;
      }
    }
    return over;
  }

  StepTuner tuner_{{kStart, 4, ""}};
  Clock::time_point now_;
  milliseconds cycle_time_{10};
  std::uint64_t cycle_ = 0;
};

TEST_F(StepTunerTest, ATrialIsOverAfterItsCyclesAndThoseThatDoNotCount) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 6));  // 5 intervals, of which 2 do not count
  EXPECT_TRUE(run(1, 2));
  EXPECT_FALSE(run(1, 10)) << "nothing new until `next`";
}

TEST_F(StepTunerTest, CyclesOfAnotherFreezeAddUp) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 6));  // 3 count
  tuner_.frozen(plan_of(1 << 20), 3);
  EXPECT_FALSE(run(3, 3));
  EXPECT_TRUE(run(3, 1));
}

TEST_F(StepTunerTest, SchedulesThatMoveLessAreNotMeasured) {
  tuner_.frozen(plan_of(1 << 20), 1);
  EXPECT_FALSE(run(1, 4));
  tuner_.frozen(plan_of(1 << 10), 3);
  EXPECT_FALSE(run(3, 100));
  tuner_.frozen(plan_of(1 << 20), 5);
  EXPECT_TRUE(run(5, 10));
}

TEST_F(StepTunerTest, AScheduleThatMovesMoreStartsAnew) {
  tuner_.frozen(plan_of(1 << 10), 1);
  EXPECT_FALSE(run(1, 6));
  tuner_.frozen(plan_of(1 << 20), 3);
  EXPECT_FALSE(run(3, 6));
  EXPECT_TRUE(run(3, 1));
}

TEST_F(StepTunerTest, NothingIsMeasuredBetweenOtherSizesAndTheFreezeWithThem) {
  tuner_.frozen(plan_of(1 << 20), 1);
  std::uint32_t epoch = 1;
  std::optional<BucketSizes> sizes;
  for (int trials = 0; !sizes && trials < 3; ++trials) {
    ASSERT_TRUE(run(epoch, 20));
    sizes = tuner_.next();
  }
  ASSERT_TRUE(sizes);
  EXPECT_NE(*sizes, kStart);
  EXPECT_FALSE(run(epoch, 100)) << "the old sizes still hold";
  EXPECT_FALSE(tuner_.next());
  epoch += 2;
  tuner_.frozen(plan_of(1 << 20), epoch);
  EXPECT_TRUE(run(epoch, 20));
}

TEST_F(StepTunerTest, EndsWithTheSizesOfTheShortestCycles) {
  std::uint32_t epoch = 1;
  BucketSizes sizes = kStart;
  tuner_.frozen(plan_of(100 << 20), epoch);
  while (!tuner_.finished()) {
    cycle_time_ = milliseconds(sizes.threshold == std::size_t{4} << 20 ? 10 : 20);
    ASSERT_TRUE(run(epoch, 20));
    if (const auto next = tuner_.next()) {
      sizes = *next;
      epoch += 2;
      tuner_.frozen(plan_of(100 << 20), epoch);
    }
  }
  EXPECT_EQ(sizes.threshold, std::size_t{4} << 20);
  EXPECT_EQ(tuner_.summary().find("autotune: threshold 4096 KiB, edge 1024 KiB is 50.0 % faster"),
            0U)
      << tuner_.summary();
  EXPECT_FALSE(run(epoch, 100));

  tuner_.frozen(plan_of(50 << 20), epoch += 2);
  EXPECT_TRUE(tuner_.finished()) << "a schedule that moves less changes nothing";
  tuner_.frozen(plan_of(100 << 20), epoch += 2);
  EXPECT_TRUE(tuner_.finished());
  tuner_.frozen(plan_of(200 << 20), epoch += 2);
  EXPECT_FALSE(tuner_.finished()) << "a schedule that moves more starts a new search";
  EXPECT_TRUE(run(epoch, 20));
}

/// A named pipe in place of a log, which makes its writer wait when it is full.
class Pipe {
 public:
  Pipe() : path_(fmt::format("{}step_tuner_{}", testing::TempDir(), ::getpid())) {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
    EXPECT_TRUE(fd_);
  }
  ~Pipe() { ::unlink(path_.c_str()); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  void fill() {
    while (::write(fd_.get(), "x", 1) == 1) continue;
  }
  /// Returns what is in the pipe.
  std::string drain() {
    std::string all(std::size_t{1} << 20, ' ');
    const ssize_t count = ::read(fd_.get(), all.data(), all.size());
    all.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
    return all;
  }

 private:
  std::string path_;
  UniqueFd fd_;
};

TEST(StepTuner, DoesNotWaitForItsLog) {
  Pipe pipe;
  {
    StepTuner tuner({kStart, 1, pipe.path()});
    EXPECT_EQ(pipe.drain().find("trial,threshold,"), 0U);
    pipe.fill();
    tuner.frozen(plan_of(1 << 20), 1);
    Clock::time_point now;
    std::uint64_t cycle = 0;
    while (!tuner.turn(1, cycle++, now)) now += milliseconds(10);
    static_cast<void>(tuner.next());
    pipe.drain();  // so the line has room, for which the destructor waits
  }
  const std::string line = pipe.drain();
  EXPECT_EQ(line.find("1,16777216,"), 0U) << line;
  EXPECT_TRUE(line.ends_with('\n'));
}

TEST(StepTuner, ALogThatCannotBeWrittenIsToldAtOnce) {
  try {
    const StepTuner tuner({kStart, 4, "/nowhere/at/all.csv"});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Errc::resource);
    EXPECT_NE(std::string(error.what()).find("/nowhere/at/all.csv"), std::string::npos);
  }
}

}  // namespace
}  // namespace hvd
