// One rank as its agent sees it: a process and the pipes it writes to.
#pragma once

#include <chrono>
#include <cstdint>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <sys/types.h>

#include <hvd/core/fd.hpp>
#include <hvd/core/types.hpp>

#include "frames.hpp"
#include "rank_inquiry.hpp"

namespace hvd::launcher {

/// The read end of a rank's stdout or stderr.
struct OutputPipe {
  OutputPipe(boost::asio::io_context& io, UniqueFd end, int owner, Stream kind);

  boost::asio::posix::stream_descriptor descriptor;
  int rank;
  Stream stream;
  bool open = true;
  bool waiting = false;  ///< for bytes; otherwise for credit
};

struct RankProcess {
  RankProcess(boost::asio::io_context& io, int global_rank, pid_t process, UniqueFd pidfd,
              UniqueFd read_out, UniqueFd read_err, UniqueFd inquiries);

  int rank;
  pid_t pid;                                    ///< also its process group
  boost::asio::posix::stream_descriptor ended;  ///< readable when the process is over
  OutputPipe out;
  OutputPipe err;
  RankInquiry inquiry;
  Clock::time_point started = Clock::now();
  bool running = true;
};

}  // namespace hvd::launcher
