#include "job/file_writer.hpp"

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include <boost/asio/post.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "base/exit_codes.hpp"
#include "base/signals.hpp"

namespace hvd::launcher {
namespace {

/// The time by which writing may delay the end of hvdrun, beyond hvdrun's own deadlines.
constexpr std::chrono::milliseconds kPatience{250};

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t size = ::write(fd, bytes.data(), bytes.size());
    if (size >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(size));
    } else if (errno != EINTR) {
      return {errno, std::generic_category()};
    }
  }
  return {};
}

}  // namespace

/// The state that both threads share.
struct FileWriter::Shared {
  struct Chunk {
    std::size_t file;
    std::string bytes;
    bool last;  ///< the file is closed then
  };
  struct File {
    OnError on_error;  ///< used by the loop thread
    // The writing thread uses the rest.
    UniqueFd fd;
    Open open;          ///< empty once it was called
    bool over = false;  ///< closed, or opening or writing has failed

    std::error_code write(std::string_view bytes) {
      if (over) return {};
      if (open) fd = std::exchange(open, nullptr)();
      const std::error_code error =
          fd ? write_all(fd.get(), bytes) : std::error_code(errno, std::generic_category());
      if (error) (void)close();
      return error;
    }
    /// Some file systems, such as NFS, report only here that a write has failed.
    std::error_code close() {
      over = true;
      const int failed = fd ? ::close(fd.release()) : 0;
      return failed != 0 ? std::error_code(errno, std::generic_category()) : std::error_code();
    }
  };

  // The loop thread uses these.
  std::function<void()> on_progress;
  std::size_t queued = 0;  ///< bytes that were not yet reported as written
  std::size_t chunks = 0;  ///< chunks that were not yet reported as done

  std::mutex mutex;
  std::condition_variable changed;
  /// The loop thread adds to it; references stay valid.
  std::deque<File> files;
  std::deque<Chunk> queue;
  bool stopped = false;  ///< the writer is gone; written by the loop thread
  bool over = false;     ///< the thread has nothing more to do

  void work(boost::asio::io_context& io, const std::shared_ptr<Shared>& self) {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !queue.empty() || stopped; });
      if (queue.empty()) break;
      const Chunk chunk = std::move(queue.front());
      queue.pop_front();
      File& file = files[chunk.file];
      lock.unlock();
      std::error_code error = file.write(chunk.bytes);
      if (chunk.last && !error) error = file.close();
      lock.lock();
      if (stopped) continue;
      boost::asio::post(io, [self, error, number = chunk.file, size = chunk.bytes.size()] {
        if (self->stopped) return;
        self->queued -= size;
        --self->chunks;
        if (error) self->files[number].on_error(error);
        if (self->on_progress) self->on_progress();
      });
    }
    lock.unlock();
    for (File& file : files) file.fd.reset();  // closing may take time as well
    lock.lock();
    over = true;
    changed.notify_all();
  }
};

FileWriter::FileWriter(boost::asio::io_context& io)
    : io_(io), shared_(std::make_shared<Shared>()) {}

FileWriter::~FileWriter() {
  std::unique_lock lock(shared_->mutex);
  shared_->stopped = true;
  shared_->changed.notify_all();
  if (!thread_.joinable()) return;
  const bool over = shared_->changed.wait_for(lock, kPatience, [this] { return shared_->over; });
  shared_->queue.clear();
  lock.unlock();
  if (over) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

std::size_t FileWriter::add(Open open, OnError on_error) {
  const std::size_t number = push({}, std::move(open), std::move(on_error));
  queue(number, {}, false);  // so that it is opened also where nothing is written to it
  return number;
}

std::size_t FileWriter::add(UniqueFd file, OnError on_error) {
  return push(std::move(file), {}, std::move(on_error));
}

std::size_t FileWriter::push(UniqueFd file, Open open, OnError on_error) {
  const std::lock_guard lock(shared_->mutex);
  shared_->files.push_back({std::move(on_error), std::move(file), std::move(open)});
  return shared_->files.size() - 1;
}

void FileWriter::start(std::function<void()> on_progress) {
  shared_->on_progress = std::move(on_progress);
}

void FileWriter::write(std::size_t file, std::string_view bytes) {
  if (!bytes.empty()) queue(file, bytes, false);
}

void FileWriter::close(std::size_t file) { queue(file, {}, true); }

void FileWriter::queue(std::size_t file, std::string_view bytes, bool last) {
  if (!thread_.joinable()) start_thread();
  shared_->queued += bytes.size();
  const std::lock_guard lock(shared_->mutex);
  if (!shared_->queue.empty() && shared_->queue.back().file == file) {
    shared_->queue.back().bytes += bytes;
    shared_->queue.back().last = last;
  } else {
    shared_->queue.push_back({file, std::string(bytes), last});
    ++shared_->chunks;
  }
  shared_->changed.notify_all();
}

std::size_t FileWriter::queued() const noexcept { return shared_->queued; }

bool FileWriter::idle() const noexcept { return shared_->chunks == 0; }

/// Starts the thread when there is first something to do, since hvdrun forks other processes
/// before, and many jobs write no files.
void FileWriter::start_thread() {
  const BlockSignals blocked;  // signals are for the thread that runs the loop
  try {
    thread_ = std::thread([&io = io_, shared = shared_] { shared->work(io, shared); });
  } catch (const std::system_error& error) {
    throw LaunchError(kExitResource,
                      fmt::format("cannot start a thread that writes files: {}", error.what()));
  }
}

}  // namespace hvd::launcher
