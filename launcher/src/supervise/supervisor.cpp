#include "supervise/supervisor.hpp"

#include <algorithm>
#include <utility>

#include "base/exit_codes.hpp"

namespace hvd::launcher {

using boost::system::error_code;

Supervisor::Supervisor(boost::asio::io_context& io, int num_ranks,
                       const JobPolicy::Options& options, std::function<void(const End&)> on_end)
    : policy_(num_ranks, options),
      on_end_(std::move(on_end)),
      settle_timer_(io),
      limit_timer_(io) {}

void Supervisor::limit(std::chrono::milliseconds time, const std::string& what) {
  limit_timer_.expires_after(time);
  limit_timer_.async_wait([this, what](error_code error) {
    if (!error) on_trouble(kExitDeadline, what);
  });
}

void Supervisor::on_exit(const RankEnd& end, Clock::time_point at) {
  const auto now = Clock::now();
  obey(policy_.on_exit(end, now, std::min<Clock::time_point>(now, at)));
  const auto due = policy_.wake_up();
  if (!due) return;
  settle_timer_.expires_at(*due);
  settle_timer_.async_wait([this](error_code error) {
    if (!error) obey(policy_.on_time(Clock::now()));
  });
}

void Supervisor::stop() {
  settle_timer_.cancel();
  limit_timer_.cancel();
}

void Supervisor::obey(const std::optional<End>& order) {
  if (order) on_end_(*order);
}

}  // namespace hvd::launcher
