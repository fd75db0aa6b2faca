// Divides a message among the streams of a pair of ranks.
#pragma once

#include <algorithm>
#include <cstddef>

namespace hvd::detail {

/// Follows one stream's part of a message: stripe i of 256 KiB is on stream i modulo the number of
/// streams. A message below a MiB is on the first stream alone.
class Stripes {
 public:
  static constexpr std::size_t kStripe = std::size_t{256} << 10;  ///< whole elements of any type
  static constexpr std::size_t kLeast = std::size_t{1} << 20;

  Stripes(std::size_t message, int streams, int stream) noexcept
      : message_(message),
        step_(message < kLeast ? message : static_cast<std::size_t>(streams) * kStripe),
        stripe_(message < kLeast ? message : kStripe),
        begin_(message < kLeast && stream > 0 ? message
                                              : static_cast<std::size_t>(stream) * kStripe) {}

  [[nodiscard]] static bool many(std::size_t message) noexcept { return message >= kLeast; }

  [[nodiscard]] bool done() const noexcept { return begin_ >= message_; }
  /// Return the offset of the next byte, and how many bytes are left of its stripe.
  [[nodiscard]] std::size_t offset() const noexcept { return begin_ + moved_; }
  [[nodiscard]] std::size_t left() const noexcept {
    return std::min(begin_ + stripe_, message_) - offset();
  }
  void advance(std::size_t bytes) noexcept {
    moved_ += bytes;
    if (left() > 0) return;
    begin_ += step_;
    moved_ = 0;
  }

 private:
  std::size_t message_;
  std::size_t step_;
  std::size_t stripe_;
  std::size_t begin_;  // of the stripe
  std::size_t moved_ = 0;
};

}  // namespace hvd::detail
