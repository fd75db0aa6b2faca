// Holds the memory of the tensors of one call as one row of bytes for each rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hvd::detail {

/// A row has a piece of every tensor, one after the other; pieces may be empty. `Byte` is std::byte
/// or const std::byte. The object keeps its memory from one operation to the next.
template <class Byte>
class HostRows {
 public:
  struct Piece {
    Byte* data = nullptr;  ///< may be null where a rank has nothing, or wants nothing
    std::size_t bytes = 0;
    std::size_t begin = 0;  ///< offset in its row
  };

  /// Begins anew with `rows` rows of `pieces` empty pieces.
  void reset(std::size_t rows, std::size_t pieces) {
    pieces_.assign(rows * pieces, Piece{});
    bytes_.assign(rows, 0);
    width_ = pieces;
  }
  /// Sets the next piece of a row. Pieces are set in ascending order and follow without gaps.
  void set(std::size_t row, std::size_t piece, Byte* data, std::size_t bytes) noexcept {
    pieces_[row * width_ + piece] = {data, bytes, bytes_[row]};
    bytes_[row] += bytes;
  }

  /// Empties a row whose bytes have been copied already.
  void drop(std::size_t row) noexcept { bytes_[row] = 0; }

  [[nodiscard]] std::size_t rows() const noexcept { return bytes_.size(); }
  [[nodiscard]] std::size_t bytes(std::size_t row) const noexcept { return bytes_[row]; }
  [[nodiscard]] std::span<const Piece> row(std::size_t row) const noexcept {
    return {pieces_.data() + row * width_, width_};
  }
  /// Returns the pieces of all rows, row after row.
  [[nodiscard]] std::span<const Piece> pieces() const noexcept { return pieces_; }
  [[nodiscard]] std::size_t most() const noexcept {
    return bytes_.empty() ? 0 : *std::max_element(bytes_.begin(), bytes_.end());
  }

  /// Calls fn(std::size_t piece, std::size_t offset in it, std::size_t bytes) for the part of each
  /// piece that lies between `begin` and `end` of a row.
  template <class Fn>
  void for_each_part(std::size_t row, std::size_t begin, std::size_t end, Fn fn) const {
    const std::span<const Piece> all = this->row(row);
    end = std::min(end, bytes_[row]);
    if (begin >= end) return;
    auto it = std::upper_bound(all.begin(), all.end(), begin, [](std::size_t at, const Piece& p) {
      return at < p.begin + p.bytes;
    });
    for (; it != all.end() && it->begin < end; ++it) {
      const std::size_t from = std::max(begin, it->begin);
      const std::size_t to = std::min(end, it->begin + it->bytes);
      if (from < to) fn(static_cast<std::size_t>(it - all.begin()), from - it->begin, to - from);
    }
  }

 private:
  std::vector<Piece> pieces_;
  std::vector<std::size_t> bytes_;
  std::size_t width_ = 0;
};

}  // namespace hvd::detail
