#include "arrivals/board.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

#include "arrivals/ticket.hpp"
#include "arrivals/wake_event.hpp"
#include "arrivals/withdrawals.hpp"
#include "polling/spin_budget.hpp"
#include "transport/backoff.hpp"
#include "transport/failure.hpp"
#include "transport/poll_wait.hpp"

namespace hvd {
namespace {

/// Every reason to wake comes as an event; this is for a kernel too short of memory to deliver one.
constexpr std::chrono::seconds kLookAgain{1};

void ring(int stream) noexcept {
  const std::byte bell{1};
  // When it does not fit, the sleeper has something to read already.
  [[maybe_unused]] const ssize_t sent = ::send(stream, &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Takes the bytes that have come; false when the stream has ended.
bool drain(int stream) noexcept {
  std::array<std::byte, 64> bells;
  for (;;) {
    const ssize_t got = ::recv(stream, bells.data(), bells.size(), MSG_DONTWAIT);
    if (got > 0) continue;
    return got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  }
}

class BoardArrivals final : public Arrivals {
 public:
  explicit BoardArrivals(Board board)
      : board_(std::move(board)), own_(*board_.own), spins_(spins_for(size())) {}

  [[nodiscard]] bool meet(std::uint64_t ticket, std::uint64_t digest,
                          std::span<const int> members) override {
    bool met = false;
    failure_.guard([&] { met = run({ticket, digest, members}); });
    return met;
  }

  void withdraw(std::uint64_t ticket) noexcept override {
    // The gap first: whoever is told comes to later tickets, and is seen there.
    own_.skip(own_.arrived(), ticket);
    withdrawals_.withdraw(ticket);
    wake_.raise();
  }

  void settle(std::span<const std::uint64_t> reached) override {
    const auto rank = static_cast<std::size_t>(board_.rank);
    if (rank < reached.size()) {
      own_.skip(reached[rank], *std::max_element(reached.begin(), reached.end()));
    }
    withdrawals_.settle(reached);
    wake_.raise();
  }

  void abort() noexcept override {
    failure_.abort();
    wake_.raise();
  }

 private:
  struct Call {
    std::uint64_t ticket = 0;
    std::uint64_t digest = 0;
    std::span<const int> members;
  };

  [[nodiscard]] int size() const noexcept { return static_cast<int>(board_.peers.size()); }
  [[nodiscard]] const BoardPeer& peer(int rank) const noexcept {
    return board_.peers[static_cast<std::size_t>(rank)];
  }

  bool run(const Call& call);
  void announce(const Call& call);
  [[nodiscard]] bool came(int member, const Call& call, Fate fate) const;
  void sleep(const Call& call, std::size_t waits_for, Fate fate);

  Board board_;
  LineWriter own_;
  Withdrawals withdrawals_;
  WakeEvent wake_;
  Failure failure_;
  std::vector<pollfd> polled_;
  std::vector<int> polled_ranks_;
  SpinBudget spins_;
};

bool BoardArrivals::run(const Call& call) {
  static_cast<void>(position_in(call.members, board_.rank, size()));
  check_order(own_.arrived(), call.ticket);
  Fate fate = withdrawals_.of(call.ticket, call.members);
  if (fate == Fate::dead || fate == Fate::given_up) return false;
  announce(call);

  // All must come, so they are waited for one after the other.
  Backoff backoff(spins_.now());
  int looks = 0;
  std::size_t waits_for = 0;
  while (waits_for < call.members.size()) {
    if (came(call.members[waits_for], call, fate)) {
      ++waits_for;
      spins_.came_after(looks);
      looks = 0;
      backoff = Backoff(spins_.now());
      continue;
    }
    ++looks;
    failure_.check();
    if (fate == Fate::dead || fate == Fate::given_up) return false;
    // Once more with that: everybody may have come before it was given up.
    if (const Fate now = withdrawals_.of(call.ticket, call.members); now != fate) {
      fate = now;
      waits_for = 0;
      continue;
    }
    if (!backoff.pause()) sleep(call, waits_for, fate);
  }
  return true;
}

void BoardArrivals::announce(const Call& call) {
  own_.come(call.ticket, call.digest);
  const auto self = static_cast<std::uint32_t>(board_.rank) + 1;
  for (const int member : call.members) {
    if (member == board_.rank) continue;
    const BoardPeer& other = peer(member);
    if (other.line->awaited.load(std::memory_order_seq_cst) == self) ring(other.stream.get());
  }
}

bool BoardArrivals::came(int member, const Call& call, Fate fate) const {
  if (member == board_.rank) return true;
  const Presence seen =
      presence(*peer(member).line, call.ticket, call.digest, fate, withdrawals_.withdrawn());
  if (seen == Presence::differs) throw peer_violation(member, "came with another operation");
  return seen == Presence::came;
}

void BoardArrivals::sleep(const Call& call, std::size_t waits_for, Fate fate) {
  // All that have not come are watched, so that the end of any is noticed at once.
  polled_.assign(1, wake_.interest());
  polled_ranks_.assign(1, board_.rank);
  for (const int member : call.members.subspan(waits_for)) {
    if (came(member, call, fate)) continue;
    polled_.push_back({.fd = peer(member).stream.get(), .events = POLLIN, .revents = 0});
    polled_ranks_.push_back(member);
  }
  wake_.clear();
  own_.await(call.members[waits_for]);
  // Again, now that the others know: what came before would not ring.
  const bool changed = failure_.aborted() || came(call.members[waits_for], call, fate) ||
                       withdrawals_.of(call.ticket, call.members) != fate;
  if (!changed) static_cast<void>(poll_until(polled_, Clock::now() + kLookAgain));
  own_.await(-1);
  if (changed) return;

  for (std::size_t i = 1; i < polled_.size(); ++i) {
    if (polled_[i].revents == 0 || drain(polled_[i].fd)) continue;
    // What a rank said before it left is still good.
    if (!came(polled_ranks_[i], call, fate)) {
      throw peer_lost(polled_ranks_[i], "closed its connection");
    }
  }
}

}  // namespace

std::unique_ptr<Arrivals> make_board_arrivals(Board board) {
  return std::make_unique<BoardArrivals>(std::move(board));
}

}  // namespace hvd
