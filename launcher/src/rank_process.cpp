#include "rank_process.hpp"

#include <utility>

namespace hvd::launcher {

OutputPipe::OutputPipe(boost::asio::io_context& io, UniqueFd end, int owner, Stream kind)
    : descriptor(io, end.get()), rank(owner), stream(kind) {
  (void)end.release();
  descriptor.non_blocking(true);
}

RankProcess::RankProcess(boost::asio::io_context& io, int global_rank, pid_t process,
                         UniqueFd pidfd, UniqueFd read_out, UniqueFd read_err, UniqueFd inquiries)
    : rank(global_rank),
      pid(process),
      ended(io, pidfd.get()),
      out(io, std::move(read_out), global_rank, Stream::out),
      err(io, std::move(read_err), global_rank, Stream::err),
      inquiry(io, std::move(inquiries)) {
  (void)pidfd.release();
}

}  // namespace hvd::launcher
