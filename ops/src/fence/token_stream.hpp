// Holds one end of a connection over which two ranks send each other tokens.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include <hvd/core/internal/fd.hpp>

#include "fence/token.hpp"

namespace hvd::detail {

/// Tokens follow each other without framing, since all have the same length. No call blocks. One
/// thread at a time may call it.
class TokenStream {
 public:
  TokenStream() noexcept = default;
  /// `peer` is the rank at the other end, in a job of `size`.
  TokenStream(UniqueFd fd, int peer, int size) noexcept
      : fd_(std::move(fd)), peer_(peer), size_(size) {}
  TokenStream(TokenStream&&) noexcept = default;
  TokenStream& operator=(TokenStream&&) noexcept = default;
  /// Closes the connection. Tokens that were sent still arrive, even if this rank has not read all
  /// that it received.
  ~TokenStream();

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  void post(const Token& token);
  /// Sends the tokens that were posted. Returns false when some are left. Tokens for a peer that is
  /// gone are dropped: the ranks that wait for that peer report it.
  bool flush();

  /// Returns the next token without removing it, or nothing when none has arrived. Throws
  /// Errc::protocol naming the peer.
  [[nodiscard]] const std::optional<Token>& peek();
  void pop() noexcept { next_.reset(); }
  /// Tells, after an empty `peek`, whether the peer has closed its end, so that no token will
  /// arrive.
  [[nodiscard]] bool ended() const noexcept { return ended_; }

 private:
  bool fill() noexcept;

  UniqueFd fd_;
  int peer_ = -1;
  int size_ = 0;
  std::vector<std::byte> unsent_;
  std::array<std::byte, 16 * kTokenBytes> received_{};
  std::size_t begin_ = 0;  ///< offset of the bytes that were received and not yet decoded
  std::size_t end_ = 0;    ///< the end of these bytes
  std::optional<Token> next_;
  bool ended_ = false;
};

}  // namespace hvd::detail
