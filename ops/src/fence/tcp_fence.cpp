// Implements the fence of ranks on any hosts, as a dissemination barrier (Hensgen, Finkel & Manber,
// "Two algorithms for barrier synchronization", 1988) whose tokens name the operation.
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/poll.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/ops/internal/ready_fence.hpp>

#include "fence/settlements.hpp"
#include "fence/token_stream.hpp"
#include "transport/failure.hpp"
#include "transport/yield_before_sleep.hpp"

namespace hvd {

using namespace detail;

namespace {

using Verdict = Token::Verdict;

/// Cancelling an operation does not interrupt the opening of a stream, so this rank waits for a
/// stream in slices, which double from the first of these lengths to the last, and checks for the
/// cancellation in between.
constexpr std::chrono::milliseconds kFirstOpenSlice{10};
constexpr std::chrono::milliseconds kLastOpenSlice{1000};
/// The longest sleep. Every reason to wake is an event, so this is only a precaution.
constexpr std::chrono::minutes kLookAgain{1};

class TcpFence final : public ReadyFence {
 public:
  explicit TcpFence(Session& session)
      : session_(session),
        rank_(session.topology().rank),
        streams_(static_cast<std::size_t>(session.topology().size)) {}

  [[nodiscard]] bool arrive_and_wait(std::uint64_t sequence, std::uint64_t digest,
                                     std::span<const int> members) override {
    bool all = false;
    failure_.guard([&] { all = run({sequence, digest, members}); });
    return all;
  }

  void settle(std::span<const std::uint64_t> reached) override {
    settlements_.settle(reached);
    wake_.raise();
  }

  void abort() noexcept override {
    failure_.abort();
    wake_.raise();
    session_.network().abort();  // ends a wait for a stream
  }

 private:
  struct Call {
    std::uint64_t sequence = 0;
    std::uint64_t digest = 0;
    std::span<const int> members;
  };
  /// Names the ranks that this rank sends to and receives from in one round.
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
  static const std::optional<Token>& first_from(TokenStream& in, std::uint64_t sequence);
  [[nodiscard]] bool over(const Call& call);
  void sleep(const Call& call, const Round& round);

  Session& session_;
  int rank_;
  std::vector<TokenStream> streams_;  ///< by rank
  std::vector<Round> rounds_;
  std::uint64_t last_ = 0;
  Settlements settlements_;
  WakeEvent wake_;
  Failure failure_;
};

bool TcpFence::run(const Call& call) {
  check_order(last_, call.sequence);
  plan(call);
  if (over(call) || !open_all(call)) return false;
  last_ = call.sequence;

  // In round k this rank sends a token to the member 2^k after it, and waits for the token of the
  // member 2^k before it. A token without a fault says that its sender and the 2^k - 1 members
  // before the sender have arrived, so after the last round this rank knows of all members. Once it
  // finds a member lost or at another operation it waits no more, and says so in its tokens of the
  // remaining rounds.
  Verdict verdict;
  for (std::size_t round = 0; round < rounds_.size(); ++round) {
    stream(rounds_[round].to)
        .post({call.sequence, call.digest, static_cast<std::uint8_t>(round), verdict});
    if (verdict.kind != Verdict::Kind::fine) {
      // The member that waits for this token learns the fault from it.
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

void TcpFence::plan(const Call& call) {
  const std::size_t self = position_in(call.members, rank_, size());
  const std::size_t count = call.members.size();
  rounds_.clear();
  for (std::size_t distance = 1; distance < count; distance *= 2) {
    rounds_.push_back(
        {call.members[(self + distance) % count], call.members[(self + count - distance) % count]});
  }
}

/// Opens the streams of all rounds before the first token is sent. A rank waits only for higher
/// ranks to open a stream to it, and those for still higher ones, so the waits form no cycle.
bool TcpFence::open_all(const Call& call) {
  for (const Round& round : rounds_) {
    if (!open(round.to, call) || !open(round.from, call)) return false;
  }
  return true;
}

bool TcpFence::open(int peer, const Call& call) {
  const std::string label = std::string(kTcpLabelPrefix) + "fence";
  std::chrono::milliseconds slice = kFirstOpenSlice;
  while (!stream(peer).is_open()) {
    // The lower of two ranks accepts on its event loop, even while its other threads are busy. The
    // higher one connects when it arrives at the operation, which may take any time.
    const bool dials = peer < rank_;
    const auto limit = dials ? session_.config().start_timeout : slice;
    try {
      stream(peer) =
          TokenStream(session_.network().open(peer, label, Clock::now() + limit), peer, size());
    } catch (const Error& error) {
      failure_.check();  // the network was aborted because this fence was aborted
      if (dials || error.code() != Errc::timeout) throw;
      if (over(call)) return false;
      slice = std::min(2 * slice, kLastOpenSlice);
    }
  }
  return true;
}

/// Sends the token that was posted in this round and waits for the token to be received in it.
/// Returns false when the operation is cancelled.
bool TcpFence::exchange(const Call& call, std::size_t round, Verdict& verdict) {
  // A check of a socket is a system call, which takes as long as giving up the core. So this loop
  // gives up the core between two checks, and sleeps when that was in vain for a while.
  YieldBeforeSleep yields;
  for (;;) {
    const bool sent = stream(rounds_[round].to).flush();
    if (heard(call, round, verdict) && (sent || verdict.kind != Verdict::Kind::fine)) return true;
    failure_.check();
    if (over(call)) return false;
    if (!yields.pause()) sleep(call, rounds_[round]);
  }
}

/// Returns the next token, after dropping those of earlier operations, which were cancelled.
const std::optional<Token>& TcpFence::first_from(TokenStream& in, std::uint64_t sequence) {
  for (;;) {
    const std::optional<Token>& token = in.peek();
    if (!token || token->sequence >= sequence) return token;
    in.pop();
  }
}

/// Returns whether the token of this round has arrived or never will. `verdict` is then that of the
/// token, or says that its sender is lost or at another operation.
bool TcpFence::heard(const Call& call, std::size_t round, Verdict& verdict) {
  const int from = rounds_[round].from;
  TokenStream& in = stream(from);
  const std::optional<Token>& token = first_from(in, call.sequence);
  if (!token) {
    if (in.ended()) verdict = {Verdict::Kind::lost, from};
    return in.ended();
  }
  // The sender has skipped this operation because it is cancelled: `settle` will say so here soon.
  if (token->sequence > call.sequence) return false;
  if (token->round != round) {
    throw peer_violation(
        from, fmt::format("came with other members: round {} instead of {}", token->round, round));
  }
  verdict = token->digest == call.digest ? token->verdict : Verdict{Verdict::Kind::differs, from};
  return true;
}

bool TcpFence::over(const Call& call) {
  return settlements_.of(call.sequence, call.members) == FenceOutcome::cancelled;
}

void TcpFence::sleep(const Call& call, const Round& round) {
  const bool sent = stream(round.to).flush();
  TokenStream& in = stream(round.from);
  const std::optional<Token>& token = in.peek();
  const bool heard = (token && token->sequence <= call.sequence) || in.ended();
  const bool early = token && token->sequence > call.sequence;
  wake_.clear();
  if (failure_.aborted() || over(call) || (heard && sent)) return;
  // An unread token keeps the stream readable, so poll only for the end of the peer then.
  const short events = early ? POLLRDHUP : POLLIN;
  std::array<pollfd, 3> fds{
      wake_.interest(), pollfd{.fd = heard ? -1 : in.fd(), .events = events, .revents = 0},
      pollfd{.fd = sent ? -1 : stream(round.to).fd(), .events = POLLOUT, .revents = 0}};
  static_cast<void>(poll_until(fds, Clock::now() + kLookAgain));
  if (early && fds[1].revents != 0) throw peer_lost(round.from, "closed its connection");
}

}  // namespace

std::unique_ptr<ReadyFence> make_tcp_fence(Session& session) {
  return std::make_unique<TcpFence>(session);
}

}  // namespace hvd
