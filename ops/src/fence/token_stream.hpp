// One end of a stream of tokens.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <hvd/core/fd.hpp>

#include "fence/token.hpp"

namespace hvd {

/// Never blocks. One thread at a time.
class TokenStream {
 public:
  TokenStream() noexcept = default;
  /// `peer` is the rank at the other end, in a job of `size`.
  TokenStream(UniqueFd fd, int peer, int size) noexcept
      : fd_(std::move(fd)), peer_(peer), size_(size) {}
  TokenStream(TokenStream&&) noexcept = default;
  TokenStream& operator=(TokenStream&&) noexcept = default;
  /// What was sent arrives, even where tokens have come that nobody wanted.
  ~TokenStream();

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void post(const Token& token);
  /// Sends what was posted; false when some is left. What a peer that is gone should have got is
  /// dropped: its silence is noticed by those that wait for it.
  bool flush();

  /// The next token, which stays; empty when none has come. Throws Errc::protocol naming the peer.
  [[nodiscard]] const std::optional<Token>& peek();
  void pop() noexcept { next_.reset(); }
  /// The peer has closed, and there are no more tokens. After an empty `peek`.
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  bool fill() noexcept;

  UniqueFd fd_;
  int peer_ = -1;
  int size_ = 0;
  std::vector<std::byte> unsent_;
  std::array<std::byte, 16 * kTokenBytes> received_{};
  std::size_t begin_ = 0;  ///< of what was received and not taken …
  std::size_t end_ = 0;    ///< … and its end
  std::optional<Token> next_;
  bool ended_ = false;
};

}  // namespace hvd
