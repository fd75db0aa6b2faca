#include <condition_variable>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include <hvd/core/error.hpp>
#include <hvd/core/store.hpp>

#include "store/store_limits.hpp"

namespace hvd {
namespace {

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

std::shared_ptr<Store> make_hash_store() { return std::make_shared<HashStore>(); }

}  // namespace hvd
