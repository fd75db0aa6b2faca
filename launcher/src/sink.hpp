// hvdrun's own stdout or stderr, written without ever blocking on a slow reader.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <hvd/core/fd.hpp>

namespace hvd::launcher {

class Sink {
 public:
  /// Pipes, sockets and terminals are opened anew without blocking where the system lets us, since
  /// the flag belongs to the open file, which the shell shares; where it does not, the flag is set
  /// and taken back. Files are written directly.
  Sink(boost::asio::io_context& io, int fd);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Called when some of what was queued has been written, and once with the error that ended
  /// writing; what is queued or written after an error is dropped.
  void start(std::function<void()> on_progress, std::function<void(std::error_code)> on_error);

  void write(std::string_view bytes);
  [[nodiscard]] std::size_t queued() const noexcept { return queue_.size() - written_; }

 private:
  void wait_writable();
  void write_some();
  void fail(int error);

  std::optional<boost::asio::posix::stream_descriptor> pollable_;
  int fd_;
  std::optional<int> flags_before_;  ///< set where the open file is shared
  std::string queue_;
  std::size_t written_ = 0;  ///< of `queue_`
  bool waiting_ = false;
  bool failed_ = false;
  std::function<void()> on_progress_;
  std::function<void(std::error_code)> on_error_;
};

}  // namespace hvd::launcher
