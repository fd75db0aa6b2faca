#include <atomic>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/hash_store.hpp>
#include <hvd/core/internal/text.hpp>

#include "store/store_protocol.hpp"

namespace hvd {

using namespace detail;

namespace {

// It is initialised before any code runs, since it is set during static initialisation.
constinit std::atomic<ConnectAgentStore> agent_store_client{nullptr};

}  // namespace

void HashStore::set(std::string_view key, std::span<const std::byte> value, Deadline) {
  check_store_key(key);
  check_store_value(key, value.size());
  const std::lock_guard lock(mutex_);
  values_.insert_or_assign(std::string(key), Bytes(value.begin(), value.end()));
  changed_.notify_all();
}

std::optional<Bytes> HashStore::get(std::string_view key, Deadline) {
  check_store_key(key);
  const std::lock_guard lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) return std::nullopt;
  return found->second;
}

Bytes HashStore::wait(std::string_view key, Deadline deadline) {
  check_store_key(key);
  std::unique_lock lock(mutex_);
  auto found = values_.end();
  changed_.wait_until(lock, deadline, [&] {
    found = values_.find(key);
    return found != values_.end() || cause_;
  });
  if (found != values_.end()) return found->second;
  if (cause_) std::rethrow_exception(cause_);
  throw Error(Errc::timeout, fmt::format("nobody set the store key '{}'", key));
}

void HashStore::fail(std::exception_ptr cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = std::move(cause);
  changed_.notify_all();
}

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
