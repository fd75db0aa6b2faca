// The agent's end of the socket on which a rank of the library tells how it gets on.
#pragma once

#include <functional>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/fd.hpp>
#include <hvd/core/wire.hpp>

namespace hvd::launcher {

/// Both ends of a packet socket. The first closes on exec, the second is to be inherited by one
/// rank. Throws LaunchError (71).
struct InquiryPair {
  UniqueFd ours;
  UniqueFd of_rank;
};
[[nodiscard]] InquiryPair make_inquiry_pair();

/// One answer per question, and nothing is read while none is open: a rank cannot flood.
class RankInquiry {
 public:
  RankInquiry(boost::asio::io_context& io, UniqueFd socket);

  /// `on_answer` gets what the rank said, any bytes, once; never when it says nothing. A question
  /// that is still open is not asked again.
  void ask(std::function<void(Bytes)> on_answer);

  /// Of a rank that has exited: whether it had joined a job of the library and not left it, by a
  /// shutdown or with an error.
  [[nodiscard]] bool deserted();

 private:
  void wait();
  void receive();
  [[nodiscard]] bool take_note(const Bytes& bytes);

  boost::asio::posix::stream_descriptor socket_;
  std::function<void(Bytes)> on_answer_;
  bool open_ = false;  ///< a question
  int contexts_ = 0;   ///< that have joined and not ended
};

}  // namespace hvd::launcher
