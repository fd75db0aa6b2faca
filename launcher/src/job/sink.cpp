#include "job/sink.hpp"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/descriptors.hpp"

namespace hvd::launcher {
namespace {

bool can_make_us_wait(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || ::isatty(fd) == 1;
}

}  // namespace

Sink::Sink(boost::asio::io_context& io, int fd, FileWriter& files) : files_(files) {
  if (!can_make_us_wait(fd)) {
    file_ = files.add(duplicate(fd), [this](std::error_code error) { fail(error); });
    return;
  }
  UniqueFd own(::open(fmt::format("/proc/self/fd/{}", fd).c_str(),
                      O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!own) {  // this is a socket, or a file of another user
    own = duplicate(fd);
    flags_before_ = ::fcntl(fd, F_GETFL);
  }
  stream_.emplace(io, own.get());
  (void)own.release();
  stream_->non_blocking(true);
}

Sink::~Sink() {
  if (flags_before_) ::fcntl(stream_->native_handle(), F_SETFL, *flags_before_);
}

void Sink::start(std::function<void()> on_progress, std::function<void(std::error_code)> on_error) {
  on_progress_ = std::move(on_progress);
  on_error_ = std::move(on_error);
}

void Sink::write(std::string_view bytes) {
  if (failed_ || bytes.empty()) return;
  if (file_) return files_.write(*file_, bytes);
  queue_ += bytes;
  if (!waiting_) write_some();
}

void Sink::write_some() {
  while (queued() > 0) {
    const ssize_t size = ::write(stream_->native_handle(), queue_.data() + written_, queued());
    if (size >= 0) {
      written_ += static_cast<std::size_t>(size);
    } else if (errno == EAGAIN) {
      wait_writable();
      break;
    } else if (errno != EINTR) {
      fail({errno, std::generic_category()});
      return;
    }
  }
  if (queued() == 0 || written_ >= queue_.size() / 2) {
    queue_.erase(0, written_);
    written_ = 0;
  }
}

void Sink::wait_writable() {
  waiting_ = true;
  stream_->async_wait(boost::asio::posix::descriptor_base::wait_write,
                      [this](boost::system::error_code error) {
                        if (error) return;
                        waiting_ = false;
                        write_some();
                        if (!failed_ && on_progress_) on_progress_();
                      });
}

void Sink::fail(std::error_code error) {
  failed_ = true;
  queue_.clear();
  written_ = 0;
  if (on_error_) on_error_(error);
}

}  // namespace hvd::launcher
