#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/store.hpp>

#include "store/store_protocol.hpp"

namespace hvd {

using namespace detail;

namespace {

// It is initialised before any code runs, since it is set during static initialisation.
constinit std::atomic<ConnectAgentStore> agent_store_client{nullptr};

class HashStore final : public Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value, Deadline) override {
    check_store_key(key);
    check_store_value(key, value.size());
    const std::lock_guard lock(mutex_);
    values_.insert_or_assign(std::string(key), Bytes(value.begin(), value.end()));
    changed_.notify_all();
  }

  std::optional<Bytes> get(std::string_view key, Deadline) override {
    check_store_key(key);
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return std::nullopt;
    return found->second;
  }

  Bytes wait(std::string_view key, Deadline deadline) override {
    check_store_key(key);
    std::unique_lock lock(mutex_);
    auto found = values_.end();
    const bool came = changed_.wait_until(lock, deadline, [&] {
      found = values_.find(key);
      return found != values_.end();
    });
    if (!came) throw Error(Errc::timeout, fmt::format("nobody set the store key '{}'", key));
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes, std::less<>> values_;
};

}  // namespace

void detail::check_store_key(std::string_view key) {
  if (key.empty() || key.size() > kMaxStoreKey || !is_graphic(key)) {
    throw Error(Errc::invalid_argument,
                fmt::format("a store key is 1 to {} printable characters", kMaxStoreKey));
  }
}

void detail::check_store_value(std::string_view key, std::size_t size) {
  if (size > kMaxStoreValue) {
    throw Error(Errc::invalid_argument,
                fmt::format("the value of store key '{}' has {} bytes, {} are the limit", key, size,
                            kMaxStoreValue));
  }
}

std::vector<Bytes> Store::wait_all(std::string_view prefix, int count, Deadline deadline) {
  std::vector<Bytes> values;
  for (int i = 0; i < count; ++i) values.push_back(wait(fmt::format("{}{}", prefix, i), deadline));
  return values;
}

std::shared_ptr<Store> make_hash_store() { return std::make_shared<HashStore>(); }

bool provide_agent_store(ConnectAgentStore connect) noexcept {
  agent_store_client.store(connect);
  return true;
}

ConnectAgentStore agent_store() noexcept { return agent_store_client.load(); }

}  // namespace hvd
