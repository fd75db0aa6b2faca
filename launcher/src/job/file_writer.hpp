// Opens and writes files on a thread of its own, so that a stalled file system delays nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include <boost/asio/io_context.hpp>

#include <hvd/core/internal/fd.hpp>

namespace hvd::launcher {

/// Only the thread that runs `io` may use and destroy it; `on_error` and `on_progress` run on that
/// thread. One other thread opens and writes all files, in the order of the calls, so that two
/// descriptors of one file keep their order.
class FileWriter {
 public:
  explicit FileWriter(boost::asio::io_context& io);
  /// Waits for a moment until the queued bytes are written, and drops the rest. An open or
  /// write that hangs is abandoned and ends with the process.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  /// Opens a file, or returns an invalid descriptor and sets errno. The writing thread calls it
  /// once.
  using Open = std::function<UniqueFd()>;
  using OnError = std::function<void(std::error_code)>;
  /// Adds a file and returns its number. `on_error` is called once, when opening or writing has
  /// failed. Then all bytes for this file are dropped. With `open`, throws as `write` does.
  [[nodiscard]] std::size_t add(Open open, OnError on_error);
  [[nodiscard]] std::size_t add(UniqueFd file, OnError on_error);
  /// Closes the file when what was queued for it is written. Nothing may be written to it later.
  void close(std::size_t file);
  /// `on_progress` is called when some of the queued bytes have been written or dropped.
  void start(std::function<void()> on_progress);

  /// Queues the bytes. The caller limits how many it queues. Throws LaunchError (71) when no thread
  /// can be started.
  void write(std::size_t file, std::string_view bytes);
  /// Returns the number of bytes that are not written yet, or whose error is not reported yet.
  [[nodiscard]] std::size_t queued() const noexcept;
  /// Returns whether all files are opened, written and closed as far as was asked for, and every
  /// error is reported.
  [[nodiscard]] bool idle() const noexcept;

 private:
  struct Shared;

  void start_thread();
  std::size_t push(UniqueFd file, Open open, OnError on_error);
  void queue(std::size_t file, std::string_view bytes, bool last);

  boost::asio::io_context& io_;
  std::shared_ptr<Shared> shared_;  ///< shared with the thread
  std::thread thread_;
};

}  // namespace hvd::launcher
