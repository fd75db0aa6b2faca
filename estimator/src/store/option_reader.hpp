// Reads storage options and refuses those that the file system does not know.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <hvd/estimator/store.hpp>

namespace hvd::detail {

/// Returns options one by one. `finish` refuses the options that were not requested. Messages never
/// contain values, because some are secrets. Every member throws Errc::invalid_argument.
class OptionReader {
 public:
  /// `what` names the file system in messages, such as "s3://".
  OptionReader(std::string what, StorageOptions options);

  [[nodiscard]] std::optional<std::string> take(const std::string& name);
  /// Accepts "true" and "false" in any case, 1 and 0.
  [[nodiscard]] bool take_bool(const std::string& name);
  /// Accepts a whole number of at least 1.
  [[nodiscard]] std::optional<int> take_int(const std::string& name);
  /// Throws when one of several options that belong together is missing.
  void need_all(const std::vector<std::string>& names) const;
  /// Throws when an option was not requested; the message lists the known names.
  void finish() const;

  /// Throws Errc::invalid_argument.
  [[noreturn]] void fail(const std::string& why) const;

 private:
  std::string what_;
  StorageOptions given_;
  StorageOptions left_;
  std::vector<std::string> known_;
};

}  // namespace hvd::detail
