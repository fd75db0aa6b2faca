// Where node 0 receives the others.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/version.hpp>

#include "exit_codes.hpp"
#include "node_meeting.hpp"
#include "text.hpp"
#include "this_host.hpp"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kJoinPatience{1'000};
constexpr milliseconds kFarewell{500};
constexpr std::size_t kMostTurnedAway = 64;

/// The last that a node hears. It fits into any socket's buffer.
void send_over(int stream, int code, const std::string& why) {
  const Bytes bytes =
      encode(Over{.code = code, .again = false, .report = fmt::format("hvdrun: {}\n", why)});
  (void)::send(stream, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(stream, SHUT_WR);
}

/// Until the other side has closed: a socket that is closed over unread bytes may take with it what
/// was sent.
void drain(int stream, Deadline deadline) {
  std::array<std::byte, 4'096> rest{};
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    pollfd ready{.fd = stream, .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return;
    if (::recv(stream, rest.data(), rest.size(), MSG_DONTWAIT) <= 0) return;
  }
}

bool has_ended(int stream) {
  pollfd ended{.fd = stream, .events = POLLRDHUP, .revents = 0};
  return ::poll(&ended, 1, 0) > 0;
}

/// What a node says of itself goes into messages.
std::string printable(std::string text) {
  const auto differs = [](char c) { return c <= ' ' || c >= '\x7f'; };
  std::replace_if(text.begin(), text.end(), differs, '?');
  return text.empty() ? "?" : text;
}

}  // namespace

NodeLobby::NodeLobby(const NodePlace& place, const NodeTrust& trust) : place_(place) {
  try {
    point_.emplace(loop_, meeting_address(place),
                   Identity{.job_id = place.job, .epoch = 0, .rank = -1, .secret = trust.secret},
                   [this](UniqueFd stream) { on_stream(std::move(stream)); });
  } catch (const Error& error) {
    throw LaunchError(kExitResource, fmt::format("node 0 cannot listen at {}: {}", place.endpoint(),
                                                 error.what()));
  }
}

/// On the loop thread.
void NodeLobby::on_stream(UniqueFd stream) {
  const std::lock_guard lock(mutex_);
  if (!full_) {
    arrived_.push_back(std::move(stream));
    changed_.notify_one();
    return;
  }
  send_over(stream.get(), kExitUsage,
            fmt::format("job '{}' at {} has all its {} nodes already", place_.job,
                        place_.endpoint(), place_.nodes));
  turned_away_.push_back(std::move(stream));
  if (turned_away_.size() > kMostTurnedAway) turned_away_.pop_front();
}

std::optional<UniqueFd> NodeLobby::next(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [this] { return !arrived_.empty(); })) {
    return std::nullopt;
  }
  UniqueFd stream = std::move(arrived_.front());
  arrived_.pop_front();
  return stream;
}

void NodeLobby::reopen() {
  const std::lock_guard lock(mutex_);
  full_ = false;
}

std::vector<NodeLobby::Guest> NodeLobby::gather(milliseconds patience) {
  const Deadline deadline = Clock::now() + patience;
  guests_.clear();
  while (std::ssize(guests_) < place_.nodes - 1) {
    std::optional<UniqueFd> stream = next(deadline);
    if (!stream) {
      fail(kExitHostUnreachable,
           fmt::format("{} of {} nodes came within {:.1f} s; missing: {}", guests_.size() + 1,
                       place_.nodes, std::chrono::duration<double>(patience).count(), missing()));
    }
    std::optional<Join> join = read_join(stream->get(), Clock::now() + kJoinPatience);
    if (!join) continue;
    join->hostname = printable(join->hostname);
    seat({std::move(*stream), std::move(*join)});
  }
  std::vector<Guest> by_rank(guests_.size());
  for (Guest& guest : guests_) {
    if (guest.join.node_rank < 0) continue;
    by_rank[static_cast<std::size_t>(guest.join.node_rank - 1)] = std::move(guest);
  }
  for (Guest& guest : guests_) {
    if (!guest.stream) continue;
    *std::find_if(by_rank.begin(), by_rank.end(),
                  [](const Guest& place) { return !place.stream; }) = std::move(guest);
  }
  guests_.clear();
  const std::lock_guard lock(mutex_);
  full_ = true;
  return by_rank;
}

void NodeLobby::seat(Guest guest) {
  // One that went away before all had come may come again.
  std::erase_if(guests_, [](const Guest& other) { return has_ended(other.stream.get()); });
  guests_.push_back(std::move(guest));
  check(guests_.back().join);
}

/// Whether the newcomer fits to us and to those before it.
void NodeLobby::check(const Join& join) {
  if (join.version != version()) {
    fail(kExitProtocol, fmt::format("hvdrun is {} here and {} on {}", version(),
                                    in_quotes(join.version), join.hostname));
  }
  const std::string who = join.node_rank < 0
                              ? fmt::format("a node on {}", join.hostname)
                              : fmt::format("node {} on {}", join.node_rank, join.hostname);
  if (join.nodes != place_.nodes) {
    fail(kExitUsage, fmt::format("node 0 was started with --nnodes {}, but {} with --nnodes {}",
                                 place_.nodes, who, join.nodes));
  }
  if (join.node_rank == 0) {
    fail(kExitUsage, fmt::format("two nodes claim node rank 0: one on {} and one on {}",
                                 own_host_name(), join.hostname));
  }
  for (std::size_t i = 0; i + 1 < guests_.size(); ++i) {
    if (join.node_rank < 0 || guests_[i].join.node_rank != join.node_rank) continue;
    fail(kExitUsage, fmt::format("two nodes claim node rank {}: one on {} and one on {}",
                                 join.node_rank, guests_[i].join.hostname, join.hostname));
  }
}

std::string NodeLobby::missing() const {
  std::vector<int> missing;
  for (int rank = 1; rank < place_.nodes; ++rank) {
    const auto is_it = [rank](const Guest& guest) { return guest.join.node_rank == rank; };
    if (std::none_of(guests_.begin(), guests_.end(), is_it)) missing.push_back(rank);
  }
  const auto unnumbered = [](const Guest& guest) { return guest.join.node_rank < 0; };
  if (std::any_of(guests_.begin(), guests_.end(), unnumbered)) {
    return fmt::format("{}", place_.nodes - 1 - static_cast<int>(guests_.size()));
  }
  return fmt::format("node{} {}", missing.size() == 1 ? "" : "s", rank_ranges(missing));
}

void NodeLobby::fail(int code, const std::string& why) {
  for (const Guest& guest : guests_) send_over(guest.stream.get(), code, why);
  const Deadline deadline = Clock::now() + kFarewell;
  for (const Guest& guest : guests_) drain(guest.stream.get(), deadline);
  throw LaunchError(code, why);
}

}  // namespace hvd::launcher
