// Holds the launcher's end of the socket on which a rank that uses the library reports its
// progress, and how it ends.
#pragma once

#include <functional>
#include <span>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/rank_report.hpp>
#include <hvd/core/internal/wire.hpp>

#include "supervise/job_policy.hpp"

namespace hvd::launcher {

/// Reads one answer per question, and nothing while no question is open, so that a rank cannot
/// flood the agent.
class RankInquiry {
 public:
  /// The other end of the `socket`, of type SOCK_SEQPACKET, is the rank's.
  RankInquiry(boost::asio::io_context& io, UniqueFd socket);

  /// Asks the rank. `on_answer` gets its answer, which may be any bytes, once; it is not called
  /// when the rank does not answer. Does nothing while a question is open.
  void ask(std::function<void(Bytes)> on_answer);

  /// Returns whether the rank has agreed with the others to stop.
  [[nodiscard]] bool stops();

  /// Must be called when the rank has exited. Returns `end` with what the notes of the rank say.
  [[nodiscard]] RankEnd complete(RankEnd end);
  /// Closes the socket. Nothing else may be called afterwards.
  void close();

 private:
  void wait();
  void receive();
  [[nodiscard]] bool take_note(std::span<const std::byte> bytes);

  boost::asio::posix::stream_descriptor socket_;
  std::function<void(Bytes)> on_answer_;
  bool open_ = false;  ///< a question was asked and not answered
  int contexts_ = 0;   ///< the contexts that have joined and not ended
  RankNote last_{};
  bool stops_ = false;
};

}  // namespace hvd::launcher
