// Storage options, of which every one must be known to the file system that gets them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <hvd/estimator/store.hpp>

namespace hvd {

/// Hands options out one by one, then refuses those that nobody asked for. Values are never part of
/// a message: some are secrets.
class OptionReader {
 public:
  /// `what` takes them, in messages: "s3://".
  OptionReader(std::string what, StorageOptions options);

  [[nodiscard]] std::optional<std::string> take(const std::string& name);
  /// "true" or "false", in any case, or 1 or 0.
  [[nodiscard]] bool take_bool(const std::string& name);
  /// At least 1.
  [[nodiscard]] std::optional<int> take_int(const std::string& name);
  /// Throws when one of several that go together is missing.
  void need_all(const std::vector<std::string>& names) const;
  /// Throws when something is left over, with the names that are known.
  void finish() const;

  /// All these throw Errc::invalid_argument.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string what_;
  StorageOptions given_;
  StorageOptions left_;
  std::vector<std::string> known_;
};

}  // namespace hvd
