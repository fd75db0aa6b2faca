#include "net/parked_streams.hpp"

#include <hvd/core/error.hpp>

namespace hvd::net {

void ParkedStreams::park(int peer, const std::string& label, UniqueFd stream) {
  const std::lock_guard lock(mutex_);
  if (aborted_) return;
  streams_.insert_or_assign({peer, label}, std::move(stream));
  changed_.notify_all();
}

UniqueFd ParkedStreams::take(int peer, const std::string& label, Deadline deadline) {
  const std::pair key{peer, label};
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline,
                      [&] { return aborted_ || streams_.find(key) != streams_.end(); });
  if (aborted_) throw Error(Errc::aborted, "aborted while connecting");
  const auto found = streams_.find(key);
  if (found == streams_.end()) return {};
  UniqueFd stream = std::move(found->second);
  streams_.erase(found);
  return stream;
}

void ParkedStreams::abort() noexcept {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  streams_.clear();
  changed_.notify_all();
}

}  // namespace hvd::net
