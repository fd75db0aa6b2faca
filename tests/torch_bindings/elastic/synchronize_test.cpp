// Tests how an ElasticState makes ranks equal, with ranks that are threads and generations that the
// test makes.
#include <deque>
#include <memory>

#include <gmock/gmock.h>

#include "../training.hpp"
#include "elastic/state_parts.hpp"
#include "state/agreement.hpp"

namespace hvd::elastic_synchronize_test {
namespace {

using namespace test;  // NOLINT: a test
using testing::HasSubstr;

/// What a rank carries from one generation into the next.
struct Worker {
  torch::nn::Sequential net;
  std::int64_t epoch;
  ElasticState state{net, epoch};

  explicit Worker(int number) : net(make_net(static_cast<std::uint64_t>(number))), epoch(number) {}
};

/// Runs `body(worker number, context)` as a generation of these workers, in the order of ranks.
void generation(const std::vector<int>& workers,
                const std::function<void(int worker, Context&)>& body) {
  on_ranks(static_cast<int>(workers.size()), [&](Context& context) {
    body(workers[static_cast<std::size_t>(context.rank())], context);
  });
}

void expect_equal(Worker& a, Worker& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(largest_difference(values_of(a.net), values_of(b.net)), 0);
}

TEST(ElasticSynchronize, RankZeroIsTheSourceAtFirst) {
  std::deque<Worker> workers;
  for (int number = 0; number < 3; ++number) workers.emplace_back(number);
  generation({2, 0, 1}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    EXPECT_EQ(worker.epoch, 2);
  });
  expect_equal(workers[0], workers[2]);
  expect_equal(workers[1], workers[2]);
}

// Worker 2 is lost while worker 0 sends what all are to start with. Worker 1 has a part of it.
TEST(ElasticSynchronize, ALossDuringTheFirstOneIsNotTheEnd) {
  std::deque<Worker> workers;
  for (int number = 0; number < 4; ++number) workers.emplace_back(number);
  generation({0, 1, 2}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    if (number == 2) {
      // The ranks learn who has which state and compare their parts, and then this one is lost.
      static_cast<void>(allgather(torch::zeros({1, 5}, torch::kInt64),
                                  {.name = "elastic_state/standing", .context = &context}));
      detail::StateParts parts;
      parts.modules = {worker.net.ptr().get()};
      parts.values.resize(1);
      static_cast<void>(detail::first_difference(context, parts.describe(), "elastic_state/parts"));
      return context.disconnect();
    }
    try {
      worker.state.synchronize(context);
      ADD_FAILURE() << "a rank of the generation was lost";
    } catch (const Error& error) {
      EXPECT_NE(error.code(), Errc::mismatch) << error.what();
      worker.state.generation_ended();
    }
  });
  generation({1, 3, 0}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    EXPECT_EQ(worker.epoch, 0);
  });
  Worker untouched(0);
  for (const int number : {0, 1, 3}) {
    expect_equal(workers[static_cast<std::size_t>(number)], untouched);
  }
}

// No optimizer tells whether these parameters have changed.
TEST(ElasticSynchronize, AModuleWithoutOptimizerIsMadeEqual) {
  std::deque<Worker> workers;
  for (int number = 0; number < 2; ++number) workers.emplace_back(number);
  generation({0, 1}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    const torch::NoGradGuard no_grad;
    for (auto& parameter : worker.net->parameters()) parameter.add_(number);
    worker.epoch = 7;
    worker.state.generation_ended();
  });
  generation({0, 1}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    EXPECT_EQ(worker.epoch, 0) << "no iteration has ended since";
  });
  expect_equal(workers[0], workers[1]);
}

/// Its optimizer steps without others, so that one worker can come further than another.
struct Stepping {
  std::unique_ptr<Context> alone = make_context(thread_config(0, 1), make_hash_store());
  torch::nn::Sequential net = make_net(1);
  DistributedOptimizer<torch::optim::Adam> optimizer{
      net, torch::optim::AdamOptions(0.1), {.context = alone.get()}};
  ElasticState state{net, optimizer};

  void step(int number) {
    optimizer.zero_grad();
    loss_of(net, global_batch(number)).backward();
    optimizer.step();
  }
};

TEST(ElasticSynchronize, TheRankThatIsFurthestIsTheSource) {
  std::deque<Stepping> workers(3);
  generation({0, 1, 2}, [&](int number, Context& context) {
    Stepping& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    for (int step = 0; step < (number == 1 ? 3 : 2); ++step) worker.step(step);
    worker.state.generation_ended();
  });
  const auto furthest = values_of(workers[1].net);
  EXPECT_GT(largest_difference(values_of(workers[0].net), furthest), 0);
  generation({0, 1, 2}, [&](int number, Context& context) {
    Stepping& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    EXPECT_EQ(largest_difference(values_of(worker.net), furthest), 0);
    EXPECT_TRUE(verify(worker.optimizer, context));
    worker.step(3);
    EXPECT_TRUE(verify(worker.net, context));
  });
}

TEST(ElasticSynchronize, ResetCallbacksChangeWhatAllGet) {
  std::deque<Worker> workers;
  for (int number = 0; number < 3; ++number) workers.emplace_back(number);
  generation({0, 1}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.synchronize(context);
    worker.state.commit();
    worker.state.generation_ended();
  });
  generation({0, 1, 2}, [&](int number, Context& context) {
    Worker& worker = workers[static_cast<std::size_t>(number)];
    worker.state.on_reset([&] { worker.epoch += 10; });
    if (number < 2) worker.state.reset();
    worker.state.synchronize(context);
    EXPECT_EQ(worker.epoch, 10);
  });
}

TEST(ElasticSynchronize, WithoutAnyStateLeftItIsAnError) {
  std::deque<Worker> workers;
  for (int number = 0; number < 2; ++number) workers.emplace_back(number);
  torch::nn::Linear other(2, 2);
  torch::optim::SGD sgd(workers[0].net->parameters(), 0.1);  // it may step at any time
  workers[0].state.add(sgd);
  generation({0}, [&](int, Context& context) {
    workers[0].state.synchronize(context);
    workers[0].state.generation_ended();
  });
  generation({0, 1}, [&](int number, Context& context) {
    std::string message;
    Worker& worker = workers[static_cast<std::size_t>(number)];
    EXPECT_EQ(code_of([&] { worker.state.synchronize(context); }, &message), Errc::mismatch);
    EXPECT_THAT(message, HasSubstr("the number of optimizers"));
  });
  generation({0}, [&](int, Context& context) {
    std::string message;
    EXPECT_EQ(code_of([&] { workers[0].state.synchronize(context); }, &message), Errc::unsupported);
    EXPECT_THAT(message, HasSubstr("there was no commit()"));
  });
}

TEST(ElasticSynchronize, WrongUseIsAnError) {
  on_ranks(1, [](Context& context) {
    Worker worker(0);
    EXPECT_EQ(code_of([&] { worker.state.restore(); }), Errc::invalid_argument);
    torch::nn::Linear other(2, 2);
    torch::optim::SGD sgd(other->parameters(), 0.1);
    worker.state.add(sgd);
    std::string message;
    EXPECT_EQ(code_of([&] { worker.state.synchronize(context); }, &message),
              Errc::invalid_argument);
    EXPECT_THAT(message, HasSubstr("a module that was not added"));
    worker.state.add(other);
    worker.state.synchronize(context);
  });
}

}  // namespace
}  // namespace hvd::elastic_synchronize_test
