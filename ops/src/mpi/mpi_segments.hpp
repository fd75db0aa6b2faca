// A message of an exchange as segments, some of them under way.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include <mpi.h>

#include "polling/watch.hpp"

namespace hvd {

/// One direction of an exchange. Segments begin and finish in order.
class MpiSegments {
 public:
  static constexpr std::size_t kWindow = 4;  ///< segments under way at a time

  struct Segment {
    std::size_t offset = 0;  ///< in the message
    std::size_t size = 0;
    std::size_t slot = 0;  ///< below kWindow; no other segment under way has it
  };

  /// `longest` is the size of all but the last.
  MpiSegments(std::size_t size, std::size_t longest) noexcept : size_(size), longest_(longest) {}

  [[nodiscard]] bool done() const noexcept { return finished_ == count(); }
  [[nodiscard]] bool can_begin() const noexcept {
    return begun_ < count() && begun_ - finished_ < kWindow;
  }
  /// The next one, to be started on `request(slot)`.
  [[nodiscard]] Segment begin() noexcept { return at(begun_++); }
  [[nodiscard]] MPI_Request* request(std::size_t slot) noexcept { return &requests_[slot]; }
  /// The oldest under way if it is complete. `call` is what errors name.
  [[nodiscard]] std::optional<Segment> take_finished(std::string_view call, const Watch& watch);

 private:
  [[nodiscard]] std::size_t count() const noexcept { return (size_ + longest_ - 1) / longest_; }
  [[nodiscard]] Segment at(std::size_t index) const noexcept;

  std::size_t size_;
  std::size_t longest_;
  std::size_t begun_ = 0;
  std::size_t finished_ = 0;
  std::array<MPI_Request, kWindow> requests_{};
};

}  // namespace hvd
