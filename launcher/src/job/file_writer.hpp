// Writes files on a thread of its own, so that a file system that stalls holds up nothing else.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include <boost/asio/io_context.hpp>

#include <hvd/core/fd.hpp>

namespace hvd::launcher {

/// Used, and destroyed, on the thread that runs `io`; callbacks come there too. One thread writes
/// all files, in the order of the calls, so that two descriptors of one file keep their order.
class FileWriter {
 public:
  explicit FileWriter(boost::asio::io_context& io);
  /// Waits a moment for what is queued. The rest is dropped, and a write that hangs is left to the
  /// end of the process.
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  using OnError = std::function<void(std::error_code)>;
  /// Before the first `write`. `on_error` is called once, when writing has failed; what is queued
  /// or written to this file after that is dropped. Returns the number of the file.
  [[nodiscard]] std::size_t add(UniqueFd file, OnError on_error);
  /// `on_progress` is called when some of what was queued has been written, or dropped.
  void start(std::function<void()> on_progress);

  /// Queues the bytes; callers bound what they queue. Throws LaunchError (71) when there is no
  /// thread to be had.
  void write(std::size_t file, std::string_view bytes);
  /// Bytes that are not written yet, or whose error has not been told.
  [[nodiscard]] std::size_t queued() const noexcept;

 private:
  struct Shared;

  void start_thread();

  boost::asio::io_context& io_;
  std::shared_ptr<Shared> shared_;  ///< with the thread
  std::thread thread_;
};

}  // namespace hvd::launcher
