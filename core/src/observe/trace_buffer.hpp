// Holds packed events of a timeline in memory, so that recording one neither allocates nor formats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <hvd/core/types.hpp>

namespace hvd::observe {

struct TraceEvent {
  static constexpr std::size_t kMaxDimensions = 16;

  enum class Kind : std::uint8_t { span, mark };
  Kind kind = Kind::span;
  std::string_view tensor;  ///< of a span
  std::string_view phase;   ///< of a span; the name of a mark
  std::string_view algorithm;
  Clock::time_point begin;
  Clock::time_point end;
  std::optional<DType> dtype;
  std::span<const std::int64_t> shape;
  std::uint64_t bytes = 0;
  std::uint64_t fused = 0;
};

class TraceBuffer {
 public:
  explicit TraceBuffer(std::size_t bytes) : memory_(bytes) {}

  /// Returns false when the buffer is full. Texts are cut at 64 KiB, shapes at `kMaxDimensions`.
  [[nodiscard]] bool push(const TraceEvent& event) noexcept;
  /// Calls `body` for each event in the order of `push`. The event's texts are valid during that
  /// call only.
  void for_each(const std::function<void(const TraceEvent&)>& body) const;
  void clear() noexcept { used_ = 0; }

  [[nodiscard]] bool empty() const noexcept { return used_ == 0; }
  [[nodiscard]] bool half_full() const noexcept { return used_ >= memory_.size() / 2; }

 private:
  std::vector<std::byte> memory_;
  std::size_t used_ = 0;
};

}  // namespace hvd::observe
