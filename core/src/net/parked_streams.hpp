// Accepted streams that wait until somebody asks for them.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <hvd/core/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd::net {

/// By peer and label. Any thread.
class ParkedStreams {
 public:
  /// Replaces, and closes, an earlier one: its peer has given that one up.
  void park(int peer, const std::string& label, UniqueFd stream);
  /// Empty when `deadline` comes first. Throws Errc::aborted.
  [[nodiscard]] UniqueFd take(int peer, const std::string& label, Deadline deadline);
  /// Closes all and makes every `take` throw.
  void abort() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<int, std::string>, UniqueFd> streams_;
  bool aborted_ = false;
};

}  // namespace hvd::net
