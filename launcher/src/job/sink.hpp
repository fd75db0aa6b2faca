// Writes to hvdrun's own stdout or stderr without ever blocking on a slow reader or file system.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <system_error>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "job/file_writer.hpp"

namespace hvd::launcher {

class Sink {
 public:
  /// Pipes, sockets and terminals are opened anew with O_NONBLOCK, because the flag belongs to the
  /// open file, which the shell shares. Where the system refuses that, the flag is set on the
  /// shared file and restored at the end. Everything else is written by `files`, which outlives the
  /// sink.
  Sink(boost::asio::io_context& io, int fd, FileWriter& files);
  ~Sink();
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Calls `on_progress` when some of the bytes that were queued here have been written, and
  /// `on_error` once with the error that ended writing. All bytes after an error are dropped.
  void start(std::function<void()> on_progress, std::function<void(std::error_code)> on_error);

  void write(std::string_view bytes);
  /// Returns the number of bytes that wait in this object; `files` counts its own.
  [[nodiscard]] std::size_t queued() const noexcept { return queue_.size() - written_; }

 private:
  void wait_writable();
  void write_some();
  void fail(std::error_code error);

  FileWriter& files_;
  std::optional<std::size_t> file_;                              ///< its number in `files_`
  std::optional<boost::asio::posix::stream_descriptor> stream_;  ///< where it has no number there
  std::optional<int> flags_before_;  ///< set where the open file is shared
  std::string queue_;
  std::size_t written_ = 0;  ///< bytes of `queue_` that are written
  bool waiting_ = false;
  bool failed_ = false;
  std::function<void()> on_progress_;
  std::function<void(std::error_code)> on_error_;
};

}  // namespace hvd::launcher
