// Where fused tensors lie in the fusion memory of a device.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hvd/core/backend.hpp>

namespace hvd {

/// Each tensor begins at a multiple of 16 bytes, as it does in its own memory nearly always: then
/// both ends of its copies are moved in 16-byte words. What lies between tensors is reduced with
/// them and read by nobody.
class AlignedPlaces {
 public:
  AlignedPlaces(std::span<const TensorSlice> tensors, std::size_t element) {
    places_.reserve(tensors.size());
    for (const TensorSlice& tensor : tensors) {
      const std::size_t bytes = static_cast<std::size_t>(tensor.count) * element;
      const std::size_t begin = (size_ + kAlignment - 1) / kAlignment * kAlignment;
      places_.push_back({begin, bytes});
      if (bytes > 0) size_ = begin + bytes;
    }
  }

  /// Bytes up to the end of the last: of a single tensor, no more than it has.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t offset(std::size_t tensor) const { return places_[tensor].offset; }
  [[nodiscard]] std::size_t bytes(std::size_t tensor) const { return places_[tensor].bytes; }

 private:
  static constexpr std::size_t kAlignment = 16;

  struct Place {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  std::vector<Place> places_;
  std::size_t size_ = 0;
};

}  // namespace hvd
