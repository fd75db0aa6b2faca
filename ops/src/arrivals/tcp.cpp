// Ranks on any hosts: a dissemination barrier (Hensgen, Finkel & Manber, "Two algorithms for
// barrier synchronization", 1988) whose tokens name the operation.
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include <hvd/core/error.hpp>
#include <hvd/core/session.hpp>
#include <hvd/ops/arrivals.hpp>

#include "arrivals/ticket.hpp"
#include "arrivals/token_stream.hpp"
#include "arrivals/wake_event.hpp"
#include "arrivals/withdrawals.hpp"
#include "transport/backoff.hpp"
#include "transport/failure.hpp"
#include "transport/poll_wait.hpp"

namespace hvd {
namespace {

/// A stream that opens cannot be woken for one ticket's sake: the longest it is not looked at.
constexpr std::chrono::milliseconds kOpenSlice{10};
/// Every reason to wake comes as an event; a wait has an end all the same.
constexpr std::chrono::minutes kLookAgain{1};

class TcpArrivals final : public Arrivals {
 public:
  explicit TcpArrivals(Session& session)
      : session_(session),
        rank_(session.topology().rank),
        streams_(static_cast<std::size_t>(session.topology().size)) {}

  [[nodiscard]] bool meet(std::uint64_t ticket, std::uint64_t digest,
                          std::span<const int> members) override {
    bool met = false;
    failure_.guard([&] { met = run({ticket, digest, members}); });
    return met;
  }

  void withdraw(std::uint64_t ticket) noexcept override {
    withdrawals_.withdraw(ticket);
    wake_.raise();
  }

  void settle(std::span<const std::uint64_t> reached) override {
    withdrawals_.settle(reached);
    wake_.raise();
  }

  void abort() noexcept override {
    failure_.abort();
    wake_.raise();
    session_.network().abort();  // a stream may be opening
  }

 private:
  struct Call {
    std::uint64_t ticket = 0;
    std::uint64_t digest = 0;
    std::span<const int> members;
  };
  /// Whom this rank sends to and hears from in one round.
  struct Round {
    int to = -1;
    int from = -1;
  };

  [[nodiscard]] int size() const noexcept { return static_cast<int>(streams_.size()); }
  [[nodiscard]] TokenStream& stream(int peer) { return streams_[static_cast<std::size_t>(peer)]; }

  [[nodiscard]] bool run(const Call& call);
  void plan(const Call& call);
  [[nodiscard]] bool open_all(const Call& call);
  [[nodiscard]] bool open(int peer, const Call& call);
  [[nodiscard]] bool exchange(const Call& call, std::size_t round, Verdict& verdict);
  [[nodiscard]] bool heard(const Call& call, std::size_t round, Verdict& verdict);
  static const std::optional<Token>& first_from(TokenStream& in, std::uint64_t ticket);
  [[nodiscard]] bool over(const Call& call);
  void sleep(const Call& call, const Round& round);

  Session& session_;
  int rank_;
  std::vector<TokenStream> streams_;  ///< by rank
  std::vector<Round> rounds_;
  std::uint64_t last_ = 0;
  Withdrawals withdrawals_;
  WakeEvent wake_;
  Failure failure_;
};

bool TcpArrivals::run(const Call& call) {
  check_order(last_, call.ticket);
  plan(call);
  if (over(call) || !open_all(call)) return false;
  last_ = call.ticket;

  Verdict verdict;
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    stream(rounds_[round].to)
        .post({call.ticket, call.digest, static_cast<std::uint8_t>(round), verdict});
    if (verdict.kind != Verdict::Kind::fine) {
      // The others of this ticket hear of it instead of waiting.
      static_cast<void>(stream(rounds_[round].to).flush());
    } else if (!exchange(call, round, verdict)) {
      return false;
    }
  }
  switch (verdict.kind) {
    case Verdict::Kind::lost:
      throw peer_lost(verdict.culprit, "closed its connection");
    case Verdict::Kind::differs:
      throw peer_violation(verdict.culprit, "came with another operation");
    case Verdict::Kind::fine:
      break;
  }
  return true;
}

void TcpArrivals::plan(const Call& call) {
  const std::size_t self = position_in(call.members, rank_, size());
  const std::size_t count = call.members.size();
  rounds_.clear();
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    rounds_.push_back(
        {call.members[(self + distance) % count], call.members[(self + count - distance) % count]});
  }
}

/// Before any token: a rank that waits for a stream waits for a higher rank to come, and that one
/// for higher ones still; so nobody waits in a circle.
bool TcpArrivals::open_all(const Call& call) {
  for (const Round& round : rounds_) {
    if (!open(round.to, call) || !open(round.from, call)) return false;
  }
  return true;
}

bool TcpArrivals::open(int peer, const Call& call) {
  const std::string label = std::string(kTcpLabelPrefix) + "arrivals";
  while (!stream(peer).is_open()) {
    // A lower rank is dialled and answers from its loop, be it busy or not. A higher one dials when
    // it comes, which may take any time.
    const bool dials = peer < rank_;
    const auto limit = dials ? session_.config().start_timeout : kOpenSlice;
    try {
      stream(peer) =
          TokenStream(session_.network().open(peer, label, Clock::now() + limit), peer, size());
    } catch (const Error& error) {
      failure_.check();  // the network was aborted because we were
      if (dials || error.code() != Errc::timeout) throw;
      if (over(call)) return false;
    }
  }
  return true;
}

/// Sends what was posted in this round and waits for what comes in it. Returns false when the
/// ticket is over.
bool TcpArrivals::exchange(const Call& call, std::size_t round, Verdict& verdict) {
  // Sockets cost a system call a try, so there is nothing to spin on.
  Backoff backoff(0);
  for (;;) {
    const bool sent = stream(rounds_[round].to).flush();
    if (heard(call, round, verdict) && (sent || verdict.kind != Verdict::Kind::fine)) return true;
    failure_.check();
    if (over(call)) return false;
    if (!backoff.pause()) sleep(call, rounds_[round]);
  }
}

/// The next token, without those of tickets that were given up here and not there. Whatever is
/// looked at is judged: one may come between two looks.
const std::optional<Token>& TcpArrivals::first_from(TokenStream& in, std::uint64_t ticket) {
  for (;;) {
    const std::optional<Token>& token = in.peek();
    if (!token || token->ticket >= ticket) return token;
    in.pop();
  }
}

/// The token of this round has come, or never will; with what it, or its absence, says.
bool TcpArrivals::heard(const Call& call, std::size_t round, Verdict& verdict) {
  const int from = rounds_[round].from;
  TokenStream& in = stream(from);
  const std::optional<Token>& token = first_from(in, call.ticket);
  if (!token) {
    if (in.ended()) verdict = {Verdict::Kind::lost, from};
    return in.ended();
  }
  // That rank has passed this ticket without coming: this one is about to hear why.
  if (token->ticket > call.ticket) return false;
  if (token->round != round) {
    throw peer_violation(
        from, fmt::format("came with other members: round {} instead of {}", token->round, round));
  }
  verdict = token->digest == call.digest ? token->verdict : Verdict{Verdict::Kind::differs, from};
  return true;
}

bool TcpArrivals::over(const Call& call) {
  const Fate fate = withdrawals_.of(call.ticket, call.members);
  return fate == Fate::dead || fate == Fate::given_up;
}

void TcpArrivals::sleep(const Call& call, const Round& round) {
  const bool sent = stream(round.to).flush();
  TokenStream& in = stream(round.from);
  const std::optional<Token>& token = in.peek();
  const bool heard = (token && token->ticket <= call.ticket) || in.ended();
  const bool early = token && token->ticket > call.ticket;
  wake_.clear();
  if (failure_.aborted() || over(call) || (heard && sent)) return;
  // An early token can be read all the time; only the end of that rank is news.
  const short events = early ? POLLRDHUP : POLLIN;
  std::array<pollfd, 3> fds{
      wake_.interest(), pollfd{.fd = heard ? -1 : in.fd(), .events = events, .revents = 0},
      pollfd{.fd = sent ? -1 : stream(round.to).fd(), .events = POLLOUT, .revents = 0}};
  static_cast<void>(poll_until(fds, Clock::now() + kLookAgain));
  if (early && fds[1].revents != 0) throw peer_lost(round.from, "closed its connection");
}

}  // namespace

std::unique_ptr<Arrivals> make_tcp_arrivals(Session& session) {
  return std::make_unique<TcpArrivals>(session);
}

}  // namespace hvd
