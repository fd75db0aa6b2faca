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

/// Nothing is read that was not asked for, and one answer per question: a rank cannot flood.
class RankInquiry {
 public:
  RankInquiry(boost::asio::io_context& io, UniqueFd socket);

  /// `on_answer` gets what the rank said, any bytes, once; never when it says nothing. A question
  /// that is still open is not asked again.
  void ask(std::function<void(Bytes)> on_answer);

 private:
  void wait();
  void receive();

  boost::asio::posix::stream_descriptor socket_;
  std::function<void(Bytes)> on_answer_;
  bool open_ = false;  ///< a question
};

}  // namespace hvd::launcher
