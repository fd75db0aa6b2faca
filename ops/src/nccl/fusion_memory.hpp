// Manages the device memory of fused tensors, and tells which tensors are fused and where they lie.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <hvd/core/internal/backend.hpp>

#include "nccl/nccl_comm.hpp"

namespace hvd::detail {

/// Owns memory of the current device for fused tensors, registered with every communicator that
/// uses it. One thread at a time may call it.
class FusionMemory {
 public:
  FusionMemory() noexcept = default;
  ~FusionMemory();
  FusionMemory(const FusionMemory&) = delete;
  FusionMemory& operator=(const FusionMemory&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns at least `size` bytes, registered with `comm`. Their content is lost when the memory
  /// has to grow; no work on it may be pending then.
  [[nodiscard]] std::byte* reserve(std::size_t size, const NcclComm& comm);
  /// The caller calls it before `comm` is closed.
  void deregister(const NcclComm& comm) noexcept;
  /// The caller calls it when `comm` is aborted, which ends its registration.
  void forget(const NcclComm& comm) noexcept;

 private:
  void release() noexcept;

  void* data_ = nullptr;
  std::size_t size_ = 0;
  /// The handles by communicator. A null handle remembers that NCCL did not register the memory.
  std::vector<std::pair<const NcclComm*, void*>> registrations_;
};

/// Tells which tensors of an allreduce are packed into the fusion memory, and where they lie in it.
/// A pack and an unpack save NCCL a call of a small tensor. They cost a large one two passes, so it
/// is reduced where it is, and so is the only small one. Elements that are converted have to be
/// packed. The layout depends on the counts alone, which are the same on all ranks, except `spare`.
class FusedLayout {
 public:
  /// A tensor of this size takes NCCL much longer than a call takes to launch.
  static constexpr std::size_t kInPlace = std::size_t{1} << 20;

  struct Place {
    std::size_t offset = 0;  ///< in the fusion memory, or in memory of `spare` bytes
    std::size_t bytes = 0;
    bool is_packed = false;
  };

  /// `element` is the size of an element. With `pack_all` every tensor is packed.
  FusedLayout(std::span<const TensorSlice> tensors, std::size_t element, bool pack_all = false) {
    std::size_t small = 0;
    places_.reserve(tensors.size());
    for (const TensorSlice& tensor : tensors) {
      places_.push_back({0, static_cast<std::size_t>(tensor.count) * element, false});
      if (is_small(places_.back())) ++small;
    }
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      place.is_packed = pack_all ? place.bytes > 0 : small > 1 && is_small(place);
      if (place.is_packed) {
        place.offset = append(packed_, place.bytes);
      } else if (place.bytes > 0 && tensors[i].output == nullptr) {
        place.offset = append(spare_, place.bytes);
      }
    }
  }

  [[nodiscard]] const Place& operator[](std::size_t tensor) const { return places_[tensor]; }
  /// Returns the bytes up to the end of the last packed tensor. Those between tensors are reduced
  /// too, and nobody reads them.
  [[nodiscard]] std::size_t packed() const noexcept { return packed_; }
  /// Returns the bytes that replace outputs which this rank does not have.
  [[nodiscard]] std::size_t spare() const noexcept { return spare_; }

 private:
  [[nodiscard]] static bool is_small(const Place& place) noexcept {
    return place.bytes > 0 && place.bytes < kInPlace;
  }
  /// Appends a tensor to memory of `size` bytes. It begins at a multiple of 16 bytes, as it nearly
  /// always does in its own memory, so that copies move 16-byte words on both sides.
  [[nodiscard]] static std::size_t append(std::size_t& size, std::size_t bytes) noexcept {
    constexpr std::size_t kAlignment = 16;
    const std::size_t begin = (size + kAlignment - 1) / kAlignment * kAlignment;
    size = begin + bytes;
    return begin;
  }

  std::vector<Place> places_;
  std::size_t packed_ = 0;
  std::size_t spare_ = 0;
};

}  // namespace hvd::detail
