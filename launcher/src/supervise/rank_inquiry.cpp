#include "supervise/rank_inquiry.hpp"

#include <cerrno>
#include <utility>

#include <sys/socket.h>

namespace hvd::launcher {

RankInquiry::RankInquiry(boost::asio::io_context& io, UniqueFd socket) : socket_(io, socket.get()) {
  static_cast<void>(socket.release());
}

void RankInquiry::ask(std::function<void(Bytes)> on_answer) {
  if (std::exchange(open_, true)) return;
  on_answer_ = std::move(on_answer);
  const char question = '?';
  if (::send(socket_.native_handle(), &question, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1) return;
  wait();
}

void RankInquiry::wait() {
  socket_.async_wait(boost::asio::posix::descriptor_base::wait_read,
                     [this](boost::system::error_code error) {
                       if (!error) receive();
                     });
}

void RankInquiry::receive() {
  Bytes bytes(RankReport::kMaxBytes + 1);  // longer messages are cut, and then are no reports
  const ssize_t size = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return wait();
  if (size <= 0) return;  // the rank's end is closed: no question is asked again
  bytes.resize(static_cast<std::size_t>(size));
  if (take_note(bytes)) return wait();
  open_ = false;
  on_answer_(std::move(bytes));
}

bool RankInquiry::take_note(std::span<const std::byte> bytes) {
  const std::optional<RankNote> note = decode_rank_note(bytes);
  if (!note) return false;
  if (note->kind == RankNote::Kind::stops) {
    stops_ = true;
    return true;
  }
  contexts_ += note->kind == RankNote::Kind::joined ? 1 : -1;
  last_ = *note;
  return true;
}

bool RankInquiry::stops() {
  // An answer to a question is left to `receive`.
  Bytes bytes(RankNote::kBytes);
  while (::recv(socket_.native_handle(), bytes.data(), bytes.size(),
                MSG_DONTWAIT | MSG_PEEK | MSG_TRUNC) == RankNote::kBytes) {
    (void)::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    (void)take_note(bytes);
  }
  return stops_;
}

RankEnd RankInquiry::complete(RankEnd end) {
  // A longer queue may have been full, so that notes are missing. Then they say nothing.
  constexpr int kMost = 200;
  for (int i = 0; i < kMost; ++i) {
    Bytes bytes(RankNote::kBytes + 1);
    const ssize_t size = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size <= 0) {
      end.without_shutdown = exit_code(end.status) == 0 && contexts_ > 0;
      end.blames = last_.blames;
      end.blamed_left = last_.blamed_left;
      return end;
    }
    (void)take_note(std::span(bytes).first(static_cast<std::size_t>(size)));
  }
  return end;
}

void RankInquiry::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

}  // namespace hvd::launcher
