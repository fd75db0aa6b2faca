#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/address.hpp>
#include <hvd/torch/agent_store.hpp>
#include <hvd/torch/internal/c10d_store.hpp>

namespace hvd {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSlack{10};  // LibTorch counts whole milliseconds

milliseconds time_until(Deadline deadline) {
  return std::max(milliseconds{1},
                  std::chrono::duration_cast<milliseconds>(deadline - Clock::now()));
}

class C10dStore final : public Store {
 public:
  C10dStore(c10::intrusive_ptr<c10d::Store> store, std::string name)
      : name_(std::move(name)), store_(std::move(store)) {}

  C10dStore(const Address& address, Deadline deadline)
      : name_(fmt::format("torchrun's store at {}", address.to_string())) {
    c10d::TCPStoreOptions options;
    options.port = address.port;
    options.waitWorkers = false;
    options.timeout = time_until(deadline);
    request(deadline, "it does not answer",
            [&] { store_ = c10::make_intrusive<c10d::TCPStore>(address.host, options); });
  }

  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override {
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(value.data());
    request(deadline, fmt::format("it does not take '{}'", key), [&] {
      store_->set(std::string(key), std::vector<std::uint8_t>(bytes, bytes + value.size()));
    });
  }

  std::optional<Bytes> get(std::string_view key, Deadline deadline) override {
    bool there = false;
    request(deadline, fmt::format("it does not say whether '{}' is set", key),
            [&] { there = store_->check({std::string(key)}); });
    if (!there) return std::nullopt;
    return wait(key, deadline);
  }

  Bytes wait(std::string_view key, Deadline deadline) override {
    std::vector<std::uint8_t> value;
    request(deadline, fmt::format("nobody has set '{}'", key), [&] {
      const std::vector<std::string> keys = {std::string(key)};
      store_->wait(keys, time_until(deadline));
      value = store_->get(keys.front());
    });
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    return {bytes, bytes + value.size()};
  }

 private:
  /// Makes a call to the store, and turns its error into an `Error` that says `complaint`.
  /// LibTorch's exceptions differ for a timeout and a broken connection only in their text, so this
  /// takes an error after `deadline` for a timeout.
  void request(Deadline deadline, const std::string& complaint, const std::function<void()>& call) {
    try {
      if (store_) store_->setTimeout(time_until(deadline));
      call();
    } catch (const c10::Error& error) {
      const bool late = Clock::now() + kSlack >= deadline;
      throw Error(late ? Errc::timeout : Errc::peer_lost,
                  fmt::format("{}: {}: {}", name_, complaint, error.what_without_backtrace()));
    }
  }

  std::string name_;  // for errors
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

std::shared_ptr<Store> connect_agent_store(const std::string& address, Deadline deadline) {
  const Address where = Address::parse(address);
  if (where.kind != Address::Kind::tcp) {
    throw Error(Errc::invalid_argument, fmt::format("torchrun's store is not at {}", address));
  }
  return std::make_shared<C10dStore>(where, deadline);
}

std::shared_ptr<Store> detail::store_over(c10::intrusive_ptr<c10d::Store> store, std::string name) {
  return std::make_shared<C10dStore>(std::move(store), std::move(name));
}

}  // namespace hvd
