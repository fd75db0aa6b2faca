#include "net/dial.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "net/handshake.hpp"
#include "net/socket.hpp"

namespace hvd::net {
namespace {

constexpr std::chrono::milliseconds kFirstPause{2};
constexpr std::chrono::milliseconds kLongestPause{100};

// An established connection gets all the time up to the deadline: another attempt could leave the
// server with a stream that has passed the handshake and that nobody uses.
void prove(int fd, const DialOptions& options, const Identity& self, const Interrupt& interrupt) {
  Handshake handshake = Handshake::client(self, options.peer, options.label, fresh_nonce());
  try {
    while (!handshake.done()) {
      Bytes piece = handshake.take_output();
      if (!write_all(fd, piece, options.deadline, interrupt)) {
        throw Unreachable("no answer to the handshake", false);
      }
      piece.resize(handshake.wanted());
      if (!read_exact(fd, piece, options.deadline, interrupt)) {
        throw Unreachable("no answer to the handshake", false);
      }
      handshake.consume(piece);
    }
  } catch (const StreamLost& lost) {
    throw Unreachable(fmt::format("{} in the handshake", lost.what()), false);
  }
}

UniqueFd dial_once(const DialOptions& options, const Identity& self, const Interrupt& interrupt) {
  UniqueFd fd = connect_to(options.address, options.deadline, interrupt);
  prove(fd.get(), options, self, interrupt);
  return fd;
}

[[noreturn]] void give_up(Errc code, const DialOptions& options, const std::string& cause,
                          Deadline start) {
  Fault fault;
  fault.rank = std::max(options.peer, -1);
  fault.host = options.host;
  fault.cause =
      fmt::format("cannot open '{}' at {}: {}", options.label, options.address.to_string(), cause);
  fault.phase = "init";
  fault.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  throw Error(code, std::move(fault));
}

}  // namespace

UniqueFd dial(const DialOptions& options, const Identity& self, const Interrupt& interrupt) {
  const Deadline start = Clock::now();
  Deadline refused_since = Deadline::max();  // max: the last attempt was not refused
  std::chrono::milliseconds pause = kFirstPause;
  for (;;) {
    std::string cause;
    try {
      return dial_once(options, self, interrupt);
    } catch (const Unreachable& failure) {
      cause = failure.what();
      const Deadline now = Clock::now();
      refused_since = failure.refused ? std::min(refused_since, now) : Deadline::max();
      if (failure.refused && now - refused_since > options.refusal_patience) {
        give_up(Errc::peer_lost, options, cause, start);
      }
    }
    if (Clock::now() >= options.deadline) give_up(Errc::timeout, options, cause, start);
    pause_until(std::min(options.deadline, Clock::now() + pause), interrupt);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace hvd::net
