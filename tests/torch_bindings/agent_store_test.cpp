// Tests LibTorch's client of torchrun's store as a Store of hvd, and a job that meets there.
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hvd_test/errors.hpp>
#include <hvd_test/ranks.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <hvd/core/internal/address.hpp>
#include <hvd/torch.hpp>

namespace hvd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

/// Runs the store that torchrun's agent runs.
class AgentStoreTest : public testing::Test {
 protected:
  AgentStoreTest() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    agent_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
    address_ = Address{Address::Kind::tcp, "127.0.0.1", agent_->getPort()}.to_string();
  }
  [[nodiscard]] std::shared_ptr<Store> connect() const {
    return connect_agent_store(address_, Clock::now() + seconds(20));
  }

  c10::intrusive_ptr<c10d::TCPStore> agent_;
  std::string address_;
};

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Deadline soon() { return Clock::now() + seconds(20); }

TEST_F(AgentStoreTest, KeepsWhatIsSet) {
  const auto one = connect();
  const auto other = connect();
  EXPECT_EQ(one->get("key", soon()), std::nullopt);
  one->set("key", bytes_of(std::string("a\0b", 3)), soon());
  EXPECT_EQ(other->get("key", soon()), bytes_of(std::string("a\0b", 3)));
  EXPECT_EQ(other->wait("key", soon()), bytes_of(std::string("a\0b", 3)));
  // torch sees the same value, and the client sees what torch sets.
  EXPECT_EQ(agent_->get("key").size(), 3U);
  agent_->set("torch", {1, 2});
  EXPECT_EQ(one->wait("torch", soon()).size(), 2U);
}

TEST_F(AgentStoreTest, AWaitHasItsDeadline) {
  const auto store = connect();
  const Error error =
      test::error_of([&] { (void)store->wait("never", Clock::now() + milliseconds(100)); });
  EXPECT_EQ(error.code(), Errc::timeout);
  EXPECT_THAT(error.what(), HasSubstr("'never'"));
  // The connection works as before.
  store->set("key", bytes_of("x"), soon());
  EXPECT_EQ(store->wait("key", soon()), bytes_of("x"));
}

TEST_F(AgentStoreTest, AnAgentThatHasGoneIsAnError) {
  const auto store = connect();
  agent_.reset();
  EXPECT_EQ(test::error_of([&] { (void)store->wait("key", soon()); }).code(), Errc::peer_lost);
  const Error error = test::error_of(
      [&] { (void)connect_agent_store(address_, Clock::now() + milliseconds(200)); });
  EXPECT_THAT(error.what(), HasSubstr(address_));
  EXPECT_EQ(test::error_of([&] { (void)connect_agent_store("unix:@x", soon()); }).code(),
            Errc::invalid_argument);
}

TEST_F(AgentStoreTest, AJobMeetsThereTimeAndAgain) {
  test::expect_threads(3, [this](int rank) {
    for (std::uint32_t restart = 0; restart < 2; ++restart) {
      Config config = test::thread_config(rank, 3);
      config.rendezvous = Rendezvous::agent;
      config.store_address = address_;
      config.local_rank = 0;
      config.local_size = 1;
      config.job_id = "torch-1-run";
      config.epoch = restart;
      config.interfaces = "lo";
      const auto context = make_context(config);
      const torch::Tensor sum = allreduce(
          torch::full({3}, rank), {.name = "sum", .op = ReduceOp::sum, .context = context.get()});
      EXPECT_EQ(sum[0].item<std::int64_t>(), 3);
      context->shutdown();
    }
  });
}

}  // namespace
}  // namespace hvd
