// Tests whole contexts with ranks as threads, as users of the API without torch see them.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <future>
#include <latch>
#include <limits>
#include <mutex>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>

#include <hvd/core/internal/backend.hpp>
#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::error_of;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Ne;

using Body = std::function<void(Context&)>;
using Configure = std::function<void(Config&)>;

std::vector<std::exception_ptr> run(int size, const Body& body, const Configure& configure = {}) {
  const std::shared_ptr<Store> store = make_hash_store();
  return test::run_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    if (configure) configure(config);
    const auto context = make_context(config, store);
    body(*context);
  });
}

void expect_run(int size, const Body& body, const Configure& configure = {}) {
  const std::shared_ptr<Store> store = make_hash_store();
  test::expect_threads(size, [&](int rank) {
    Config config = test::thread_config(rank, size);
    if (configure) configure(config);
    const auto context = make_context(config, store);
    body(*context);
  });
}

Work sum(Context& context, const std::string& name, std::vector<float>& data) {
  return allreduce_async(data.data(), data.data(), std::ssize(data), DType::f32,
                         {.name = name, .op = ReduceOp::sum, .context = &context});
}

class ContextAt : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ContextAt,
                         testing::ValuesIn(test::rank_counts({1, 2, 3, 4, 5, 8})));

class ContextAtTwoOrMore : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ContextAtTwoOrMore,
                         testing::ValuesIn(test::rank_counts({2, 3, 4, 5, 8})));

TEST_P(ContextAt, RanksMaySubmitInAnyOrder) {
  const int size = GetParam();
  constexpr int kTensors = 40;
  expect_run(size, [&](Context& context) {
    std::vector<std::vector<float>> data(kTensors);
    std::vector<Work> works;
    for (int i = 0; i < kTensors; ++i) {
      // The order is rotated by rank, and reversed on every other rank.
      int tensor = (i + 7 * context.rank()) % kTensors;
      if (context.rank() % 2 == 1) tensor = kTensors - 1 - tensor;
      auto& mine = data[static_cast<std::size_t>(tensor)];
      mine.assign(static_cast<std::size_t>(tensor), static_cast<float>(context.rank() + tensor));
      works.push_back(sum(context, "t" + std::to_string(tensor), mine));
    }
    for (const Work& work : works) work.wait();
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      const float expected = static_cast<float>(size * tensor + size * (size - 1) / 2);
      EXPECT_THAT(data[static_cast<std::size_t>(tensor)], Each(expected));
    }
    const Stats stats = context.stats();
    EXPECT_EQ(stats.completed, static_cast<std::uint64_t>(kTensors));
    EXPECT_LT(stats.collectives, static_cast<std::uint64_t>(kTensors)) << "nothing was fused";
    EXPECT_GT(stats.fused_tensors, 0U);
  });
}

TEST_P(ContextAt, ManyThreadsOfOneRankMaySubmit) {
  constexpr int kThreads = 4;
  constexpr int kEach = 25;
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    test::expect_threads(kThreads, [&](int thread) {
      for (int i = 0; i < kEach; ++i) {
        std::vector<float> data(3, 1.0F);
        sum(context, "thread" + std::to_string(thread) + "." + std::to_string(i), data).wait();
        EXPECT_THAT(data, Each(static_cast<float>(size)));
      }
    });
  });
}

TEST_P(ContextAtTwoOrMore, AMismatchFailsOnEveryRankAndTheNameWorksAgain) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const bool odd = context.rank() == size - 1;
    std::vector<float> data(odd ? 6 : 4, 1.0F);
    std::vector<float> other(5, 1.0F);
    const Work bad = sum(context, "x", data);
    const Work good = sum(context, "y", other);
    const Error error = error_of([&] { bad.wait(); });
    EXPECT_EQ(error.code(), Errc::mismatch);
    EXPECT_THAT(error.what(), HasSubstr("'x'"));
    EXPECT_THAT(error.what(), HasSubstr("[6] on rank " + std::to_string(size - 1)));
    EXPECT_THAT(error.what(), testing::ContainsRegex("\\[4\\] on ranks? 0"));
    good.wait();
    EXPECT_THAT(other, Each(static_cast<float>(size)));

    std::vector<float> again(4, 2.0F);
    sum(context, "x", again).wait();
    EXPECT_THAT(again, Each(static_cast<float>(2 * size)));
  });
}

TEST(ContextStart, ARankThatIsLateToItsControlStreamsMakesNoOtherRankLookDead) {
  constexpr int kSize = 4;
  constexpr seconds kTimeout{1};
  const std::shared_ptr<Store> store = make_hash_store();
  std::promise<void> failed;  // ends rank 1's wait when the test has failed already
  std::atomic_flag is_set;
  test::expect_threads(kSize, [&](int rank) {
    Config config = test::thread_config(rank, kSize);
    config.peer_timeout = kTimeout;
    auto session = std::make_unique<Session>(config, store);
    // All ranks have met. Rank 1 opens its control stream so late that a rank which is silent until
    // then would be given up.
    if (rank == 1) failed.get_future().wait_for(2 * kTimeout);
    try {
      Context context(std::move(session), {});
      context.shutdown();
    } catch (...) {
      if (!is_set.test_and_set()) failed.set_value();
      throw;
    }
  });
}

TEST_P(ContextAt, UnnamedOperationsMatchByOrder) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    for (int i = 0; i < 10; ++i) {
      std::vector<double> data(2, i);
      allreduce(std::span(data), {.context = &context});
      EXPECT_THAT(data, Each(i));
    }
  });
}

TEST(Context, ACallThatIsRefusedOnOneRankTakesNoName) {
  expect_run(2, [](Context& context) {
    std::vector<float> data(4, 1.0F);
    if (context.rank() == 1) {
      const auto refused = [&context](Device device, void* input) {
        Submission submission;
        submission.request.device = device;
        submission.request.shape = {4};
        submission.input = submission.output = input;
        return error_of([&] { (void)context.submit(std::move(submission)); }).code();
      };
      EXPECT_EQ(refused({}, nullptr), Errc::invalid_argument);
      EXPECT_EQ(refused({Device::Kind::cuda, 0}, data.data()), Errc::unsupported);
      EXPECT_EQ(error_of([&] {
                  (void)context.add_process_set({1, 0});
                }).code(),
                Errc::invalid_argument);
    }
    sum(context, "", data).wait();
    EXPECT_THAT(data, Each(2.0F));
    const ProcessSet set = context.add_process_set({0, 1});
    EXPECT_EQ(set.id, 1);
  });
}

TEST_P(ContextAt, AllgatherOfUnevenAndZeroRowsAndBroadcastFromEveryRoot) {
  const int size = GetParam();
  expect_run(size, [&](Context& context) {
    const int rank = context.rank();
    const std::vector<std::int32_t> mine(static_cast<std::size_t>(rank), rank);  // rank 0: none
    Bytes gathered;
    allgather_async(mine.data(), rank, DType::i32, gathered, {.name = "g", .context = &context})
        .wait();
    std::vector<std::int32_t> expected;
    for (int r = 0; r < size; ++r) expected.insert(expected.end(), static_cast<std::size_t>(r), r);
    ASSERT_EQ(gathered.size(), expected.size() * 4);
    EXPECT_TRUE(expected.empty() ||
                std::memcmp(gathered.data(), expected.data(), gathered.size()) == 0);
    for (int root = 0; root < size; ++root) {
      std::vector<std::int64_t> data(5, rank);
      broadcast_async(data.data(), 5, DType::i64, root, {.context = &context}).wait();
      EXPECT_THAT(data, Each(root));
    }
  });
}

TEST_P(ContextAt, NobodyLeavesABarrierBeforeAllHaveCome) {
  const int size = GetParam();
  std::atomic<int> arrived{0};
  expect_run(size, [&](Context& context) {
    for (int round = 1; round <= 5; ++round) {
      ++arrived;
      barrier({.context = &context});
      EXPECT_GE(arrived.load(), round * size);
    }
  });
}

TEST(Context, ANameThatIsPendingIsRefusedAtOnceAndTheFirstIsUnaffected) {
  std::latch refused(1);
  expect_run(2, [&](Context& context) {
    std::vector<float> data(4, 1.0F);
    if (context.rank() == 1) refused.wait();  // until then rank 0's first is pending
    const Work first = sum(context, "x", data);
    if (context.rank() == 0) {
      std::vector<float> other(4, 1.0F);
      const Error error = error_of([&] { (void)sum(context, "x", other); });
      EXPECT_EQ(error.code(), Errc::duplicate_name);
      EXPECT_THAT(error.what(), HasSubstr("'x'"));
      refused.count_down();
    }
    first.wait();
    EXPECT_THAT(data, Each(2.0F));
  });
}

/// Says that data is ready.
class ReadyEvent final : public DeviceEvent {
 public:
  void wait(Deadline) override {}
};

TEST(Context, BadArgumentsAreNamedAndNothingIsSubmitted) {
  expect_run(1, [](Context& context) {
    const auto refuse = [&](const std::function<void(Submission&)>& change, const char* why) {
      float value = 0;
      Submission submission;
      submission.request.name = "x";
      submission.request.shape = {1};
      submission.input = submission.output = &value;
      change(submission);
      const Error error = error_of([&] { (void)context.submit(std::move(submission)); });
      EXPECT_EQ(error.code(), Errc::invalid_argument);
      EXPECT_THAT(error.what(), HasSubstr(why));
    };
    refuse([](Submission& s) { s.input = nullptr; }, "input is null");
    refuse([](Submission& s) { s.output = nullptr; }, "output is null");
    refuse([](Submission& s) { s.request.shape = {2, -1}; }, "negative");
    refuse([](Submission& s) { s.request.shape = {1LL << 40, 1LL << 40}; }, "too many elements");
    refuse([](Submission& s) { s.request.group = "g"; }, "only submit_group");
    refuse([](Submission& s) { s.request.group_size = 2; }, "only submit_group");
    refuse([](Submission& s) { s.request.kind = OpKind::join; }, "join is a function of its own");
    refuse([](Submission& s) { s.request.kind = OpKind::remove_process_set; }, "of its own");
    refuse([](Submission& s) { s.request.name = std::string(2000, 'n'); }, "name is longer");
    refuse([](Submission& s) { s.request.prescale = NAN; }, "not finite");
    refuse(
        [](Submission& s) {
          s.request.dtype = DType::boolean;
          s.request.op = ReduceOp::average;
        },
        "average is not defined on bool");
    refuse(
        [](Submission& s) {
          s.request.dtype = DType::c64;
          s.request.op = ReduceOp::max;
        },
        "max is not defined on c64");
    refuse(
        [](Submission& s) {
          s.request.dtype = DType::c128;
          s.request.op = ReduceOp::product;
        },
        "product is not defined on c128");
    refuse(
        [](Submission& s) {
          s.request.kind = OpKind::broadcast;
          s.request.root = 1;
        },
        "root 1");
    refuse(
        [](Submission& s) {
          s.request.kind = OpKind::allgather;
          s.request.shape = {};
        },
        "scalar");
    refuse([](Submission& s) { s.ready = std::make_shared<ReadyEvent>(); },
           "data on the CPU must be ready");
    EXPECT_EQ(context.stats().submitted, 0U);
  });
}

TEST(Context, AnAllgatherWithoutMemoryFailsOnThatRankAlone) {
  expect_run(3, [](Context& context) {
    const float mine = 1;
    Bytes gathered;
    Submission submission;
    submission.request.kind = OpKind::allgather;
    submission.request.name = "g";
    submission.request.shape = {1};
    submission.input = &mine;
    submission.allocate = [&](const Shape&) -> void* {
      if (context.rank() == 1) throw std::length_error("no room");
      gathered.resize(3 * sizeof(float));
      return gathered.data();
    };
    const Work work = context.submit(std::move(submission));
    if (context.rank() == 1) {
      EXPECT_THROW(work.wait(), std::length_error);
    } else {
      work.wait();
    }
    barrier({.context = &context});
  });
}

TEST(Context, OneRankIsEnoughToAgreeOnAChange) {
  expect_run(3, [](Context& context) {
    EXPECT_FALSE(context.agree_on_change(false));
    EXPECT_FALSE(context.agree_on_change(context.rank() == 1));
    EXPECT_TRUE(context.agree_on_change(false));
    EXPECT_TRUE(context.agree_on_change(false));
    EXPECT_FALSE(context.stop_requested());
    EXPECT_FALSE(context.stop_requested());
  });
}

TEST(Context, SeveralThreadsMayAskWhetherToStop) {
  expect_run(2, [](Context& context) {
    const auto ask = [&context] {
      for (int i = 0; i < 200; ++i) EXPECT_FALSE(context.stop_requested());
    };
    auto other = std::async(std::launch::async, ask);
    ask();
    other.get();
  });
}

/// Returns how many collectives a frozen step sends that reduces four gradients and, as optimizers
/// do, a message in f32, and then asks whether to stop.
std::uint64_t collectives_of_a_step(Context& context, DType dtype) {
  std::vector<float> message(16, 1.0F);
  std::vector<std::vector<double>> gradients(4, std::vector<double>(16));
  const auto step = [&] {
    std::vector<Work> works;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      works.push_back(allreduce_async(gradients[i].data(), gradients[i].data(), 16, dtype,
                                      {.name = "g" + std::to_string(i), .context = &context}));
    }
    works.push_back(allreduce_async(message.data(), message.data(), 16, DType::f32,
                                    {.name = "message", .context = &context}));
    for (const Work& work : works) work.wait();
    EXPECT_FALSE(context.stop_requested());
  };
  // On a busy machine the schedule may thaw for some steps. All ranks take equally many steps.
  constexpr std::uint64_t kSteps = 20;
  std::uint64_t fewest = std::numeric_limits<std::uint64_t>::max();
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t before = context.stats().collectives;
    for (std::uint64_t j = 0; j < kSteps; ++j) step();
    fewest = std::min(fewest, context.stats().collectives - before);
  }
  return (fewest + kSteps - 1) / kSteps;
}

TEST(Context, AFrozenStepSendsTheVoteOnAStopWithItsGradients) {
  expect_run(3, [](Context& context) {
    EXPECT_EQ(collectives_of_a_step(context, DType::f32), 1);
    EXPECT_EQ(collectives_of_a_step(context, DType::f64), 2);
  });
}

TEST(Context, RanksThatJoinedEarlyAgreeOnTheChangeOfTheOthers) {
  expect_run(3, [](Context& context) {
    EXPECT_FALSE(context.agree_on_change(false));
    if (context.rank() == 1) {
      EXPECT_FALSE(context.agree_on_change(false));
      EXPECT_FALSE(context.agree_on_change(true));
    }
    context.join();
    EXPECT_TRUE(context.agree_on_change(false));
  });
}

TEST(Context, ShutdownFailsWhatCanNoLongerComplete) {
  expect_run(3, [](Context& context) {
    if (context.rank() == 2) return;  // shuts down
    std::vector<float> data(4, 1.0F);
    Work work;
    try {
      work = sum(context, "x", data);
    } catch (const Error& error) {
      FAIL() << error.what();
    }
    const Error error = error_of([&] { work.wait(); });
    EXPECT_EQ(error.code(), Errc::shut_down);
    EXPECT_THAT(error.what(), testing::ContainsRegex("2 ha(s|ve) shut down"));
    context.shutdown();
    EXPECT_EQ(error_of([&] { (void)sum(context, "y", data); }).code(), Errc::shut_down);
  });
}

TEST(Context, AbortReachesEveryRankWithTheSameError) {
  std::mutex mutex;
  std::vector<std::string> texts;
  const auto errors = run(4, [&](Context& context) {
    std::vector<float> data(4, 1.0F);
    if (context.rank() == 2) context.abort("the simulation diverged");
    const Error error = error_of([&] {
      if (context.rank() != 2) sum(context, "x", data).wait();
      context.shutdown();
    });
    EXPECT_EQ(error.code(), Errc::aborted);
    EXPECT_EQ(error.fault().rank, 2);
    EXPECT_THAT(error.what(), HasSubstr("the simulation diverged"));
    const std::lock_guard lock(mutex);
    texts.push_back(error.what());
  });
  EXPECT_THAT(errors, Each(nullptr));
  EXPECT_THAT(texts, Each(texts.front()));
}

TEST(Context, ARankThatVanishesIsNamedOnEverySurvivor) {
  for (const int victim : {0, 1, 3}) {
    const auto errors = run(4, [&](Context& context) {
      std::vector<float> data(1000, 1.0F);
      if (context.rank() == victim) {
        sum(context, "first", data).wait();
        context.disconnect();
        return;
      }
      // The rank may be lost while the others are still busy with the first operation.
      const Error error = error_of([&] {
        sum(context, "first", data).wait();
        sum(context, "second", data).wait();
      });
      EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
      EXPECT_EQ(error.fault().rank, victim) << error.what();
      // The first error stays.
      EXPECT_EQ(error_of([&] { (void)sum(context, "third", data); }).fault().rank, victim);
    });
    EXPECT_THAT(errors, Each(nullptr)) << "victim " << victim;
  }
}

TEST(Context, ARankThatThrowsLeavesAndIsNamed) {
  const auto errors = run(3, [&](Context& context) {
    if (context.rank() == 1) throw std::runtime_error("planned");
    std::vector<float> data(4, 1.0F);
    const Error error = error_of([&] { sum(context, "x", data).wait(); });
    EXPECT_EQ(error.code(), Errc::peer_lost) << error.what();
    EXPECT_EQ(error.fault().rank, 1) << error.what();
  });
  EXPECT_THAT(errors, ElementsAre(nullptr, Ne(nullptr), nullptr));
}

TEST(Context, AStallEndsTheJobWhenAskedTo) {
  std::latch over(2);
  const auto errors = run(
      3,
      [&](Context& context) {
        if (context.rank() == 1) {
          over.wait();
          return;
        }
        std::vector<float> data(4, 1.0F);
        const Error error = error_of([&] { sum(context, "lonely", data).wait(); });
        EXPECT_EQ(error.code(), Errc::timeout);
        EXPECT_EQ(error.fault().rank, 1);
        EXPECT_THAT(error.what(), HasSubstr("'lonely'"));
        over.count_down();
      },
      [](Config& config) { config.stall_abort = milliseconds(300); });
  EXPECT_THAT(errors, Each(nullptr));
}

TEST(Context, ComesAndGoesAHundredTimes) {
  for (int round = 0; round < 100; ++round) {
    expect_run(2, [&](Context& context) {
      std::vector<float> data(3, 1.0F);
      sum(context, "x", data).wait();
      EXPECT_THAT(data, Each(2.0F));
    });
  }
}

TEST(Context, MeetsAgainInAStoreThatRemembersTheLastMeeting) {
  const std::shared_ptr<Store> store = make_hash_store();
  for (std::uint32_t generation = 0; generation < 3; ++generation) {
    test::expect_threads(3, [&](int rank) {
      Config config = test::thread_config(rank, 3);
      config.generation = generation;
      const auto context = make_context(config, store);
      barrier({.context = context.get()});
    });
  }
}

TEST(Context, SettingsThatDifferBetweenRanksAreAnErrorAtStart) {
  const auto errors = run(
      2, [](Context&) {},
      [](Config& config) {
        config.start_timeout = seconds(5);
        config.transport = config.rank == 0 ? "shm" : "tcp";
      });
  ASSERT_NE(errors[1], nullptr);
  const Error error = error_of([&] { std::rethrow_exception(errors[1]); });
  EXPECT_EQ(error.code(), Errc::mismatch);
  EXPECT_THAT(error.what(), HasSubstr("HVD_TRANSPORT"));
}

TEST(Facade, IsOneContextAndMayComeAgain) {
  EXPECT_EQ(error_of([] { (void)rank(); }).code(), Errc::not_initialized);
  for (int round = 0; round < 3; ++round) {
    init(Config{});
    init(Config{});  // does nothing
    EXPECT_TRUE(is_initialized());
    EXPECT_EQ(rank(), 0);
    EXPECT_EQ(size(), 1);
    barrier();
    shutdown();
    EXPECT_FALSE(is_initialized());
  }
}

}  // namespace
}  // namespace hvd
