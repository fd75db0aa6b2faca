// Counts the requests to the store during the start of a job.
#include <atomic>
#include <memory>

#include <gtest/gtest.h>
#include <hvd_test/ranks.hpp>

#include <hvd/core/store.hpp>
#include <hvd/hvd.hpp>

namespace hvd {
namespace {

/// Counts the calls of all ranks; each is one request of a store's client.
class CountingStore final : public Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    ++requests_;
    store_->set(key, value, deadline);
  }
  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    ++requests_;
    return store_->get(key, deadline);
  }
  Bytes wait(std::string_view key, Deadline deadline) override {
    ++requests_;
    return store_->wait(key, deadline);
  }

  [[nodiscard]] int requests() const noexcept { return requests_; }

 private:
  const std::shared_ptr<Store> store_ = make_hash_store();
  std::atomic<int> requests_{0};
};

class StartRequests : public testing::TestWithParam<std::string> {};

TEST_P(StartRequests, GrowWithTheNumberOfRanksAndNoFaster) {
  constexpr int kPerRank = 11;
  for (const int size : {4, 8, 16, 32}) {
    const auto store = std::make_shared<CountingStore>();
    test::expect_threads(size, [&](int rank) {
      Config config = test::thread_config(rank, size);
      config.transport = GetParam();
      config.plan = "default";
      config.arena_size = std::size_t{1} << 20;
      const auto context = make_context(config, store);
      int sum = rank;
      allreduce(std::span(&sum, 1), {.name = "sum", .op = ReduceOp::sum, .context = context.get()});
      EXPECT_EQ(sum, size * (size - 1) / 2);
      context->shutdown();
    });
    EXPECT_LE(store->requests(), kPerRank * size) << size << " ranks";
    RecordProperty("requests_of_" + std::to_string(size), store->requests());
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, StartRequests, testing::Values("shm", "tcp"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace hvd
