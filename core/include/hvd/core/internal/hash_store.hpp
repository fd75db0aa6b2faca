// Declares the store of ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <hvd/core/store.hpp>

namespace hvd::detail {

/// Any thread may call it.
class HashStore final : public Store {
 public:
  void set(std::string_view key, std::span<const std::byte> value, Deadline deadline) override;
  [[nodiscard]] std::optional<Bytes> get(std::string_view key, Deadline deadline) override;
  [[nodiscard]] Bytes wait(std::string_view key, Deadline deadline) override;

  /// Makes all waits, those that are under way too, throw `cause`, which says why a rank will never
  /// set what the others wait for. Only the first call counts.
  void fail(std::exception_ptr cause);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Bytes, std::less<>> values_;
  std::exception_ptr cause_;
};

}  // namespace hvd::detail
