#include "transport/agent_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/delivery.hpp>
#include <hvd/core/internal/text.hpp>
#include <hvd/core/version.hpp>

namespace hvd::launcher {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::string_view kGreeting = "hvdrun-agent ";
constexpr std::size_t kMaxChatter = std::size_t{64} << 10;
// How often `drain` looks whether everything has been delivered.
constexpr std::chrono::milliseconds kLook{50};

}  // namespace

void drain(int socket, Deadline deadline, Deadline delivery_deadline) {
  using std::chrono::milliseconds;
  Bytes dropped(1 << 16);
  for (;;) {
    pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
    const Deadline end = is_delivered(socket) ? deadline : std::max(deadline, delivery_deadline);
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    if (left.count() <= 0) return;
    const int ready = ::poll(&readable, 1, static_cast<int>(std::min(left, kLook).count()));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0) return;
    if (::recv(socket, dropped.data(), dropped.size(), MSG_DONTWAIT) <= 0) return;
  }
}

AgentStream::AgentStream(asio::io_context& io, UniqueFd input, UniqueFd output)
    : input_(io, input.get()), output_(io, output.get()) {
  (void)input.release();
  (void)output.release();
}

void AgentStream::await_greeting(std::function<void(std::string)> on_greeting,
                                 std::function<void(std::string)> on_end) {
  on_greeting_ = std::move(on_greeting);
  on_end_ = std::move(on_end);
  read_greeting();
}

/// Reads byte by byte, because frames may follow the greeting at once and must not be read here.
void AgentStream::read_greeting() {
  asio::async_read(input_, asio::buffer(&next_, 1), [this](error_code error, std::size_t) {
    if (ended_) return;
    if (error || heard_.size() == kMaxChatter) return end(heard_);
    const bool is_line = next_ == '\n';
    const auto greeting =
        is_line ? heard_.find(kGreeting, heard_.rfind('\n') + 1) : std::string::npos;
    if (greeting == std::string::npos) {
      heard_ += next_;
      return read_greeting();
    }
    const std::string version = heard_.substr(greeting + kGreeting.size());
    heard_.clear();
    std::exchange(on_greeting_, nullptr)(version);
  });
}

void AgentStream::start(std::function<void(Frame)> on_frame,
                        std::function<void(std::string)> on_end) {
  on_frame_ = std::move(on_frame);
  on_end_ = std::move(on_end);
  read_length();
}

void AgentStream::read_length() {
  asio::async_read(input_, asio::buffer(length_), [this](error_code error, std::size_t read) {
    if (ended_) return;
    if (error) {
      end(error == asio::error::eof && read == 0 ? "" : error.message());
      return;
    }
    const std::uint32_t size = WireReader(length_, "launcher frame").u32();
    if (size == 0 || size > kMaxFrame) {
      end(fmt::format("a frame of {} bytes", size));
      return;
    }
    body_.resize(size);
    read_body();
  });
}

void AgentStream::read_body() {
  asio::async_read(input_, asio::buffer(body_), [this](error_code error, std::size_t) {
    if (ended_) return;
    if (error) {
      end(error.message());
      return;
    }
    Frame frame;
    try {
      frame = decode(body_);
    } catch (const Error& broken) {
      end(broken.what());
      return;
    }
    on_frame_(std::move(frame));
    if (!ended_) read_length();
  });
}

void AgentStream::greet() {
  const std::string text = fmt::format("{}{}\n", kGreeting, version());
  const auto bytes = detail::bytes_of(text);
  queue({bytes.begin(), bytes.end()});
}

void AgentStream::send(const Frame& frame) { queue(encode(frame)); }

void AgentStream::queue(Bytes bytes) {
  if (ended_) return;
  queue_.push_back(std::move(bytes));
  if (queue_.size() == 1) write_next();
}

void AgentStream::write_next() {
  asio::async_write(output_, asio::buffer(queue_.front()), [this](error_code error, std::size_t) {
    if (ended_) return;
    if (error) {
      end(error.message());
      return;
    }
    queue_.pop_front();
    if (!queue_.empty()) return write_next();
    if (on_flushed_) on_flushed_();
  });
}

void AgentStream::end(const std::string& why) {
  const auto on_end = std::move(on_end_);
  close();
  if (on_end) on_end(why);
}

void AgentStream::finish() {
  ended_ = true;
  error_code ignored;
  input_.cancel(ignored);
  output_.cancel(ignored);
  if (output_.is_open()) ::shutdown(output_.native_handle(), SHUT_WR);
}

void AgentStream::drain(Deadline deadline, Deadline delivery_deadline) {
  if (input_.is_open()) launcher::drain(input_.native_handle(), deadline, delivery_deadline);
  close();
}

void AgentStream::close() {
  ended_ = true;
  error_code ignored;
  input_.close(ignored);
  output_.close(ignored);
}

}  // namespace hvd::launcher
