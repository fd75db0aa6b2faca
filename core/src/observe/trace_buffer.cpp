#include "observe/trace_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace hvd::observe {
namespace {

/// Precedes each packed event; the event's texts and dimensions follow.
struct Header {
  Clock::time_point begin;
  Clock::time_point end;
  std::uint64_t bytes;
  std::uint64_t fused;
  std::uint16_t tensor_size;
  std::uint16_t phase_size;
  std::uint16_t algorithm_size;
  TraceEvent::Kind kind;
  std::uint8_t dimensions;
  std::optional<DType> dtype;
};

std::string_view cut(std::string_view text) noexcept {
  return text.substr(0, std::numeric_limits<std::uint16_t>::max());
}

}  // namespace

bool TraceBuffer::push(const TraceEvent& event) noexcept {
  const std::string_view tensor = cut(event.tensor);
  const std::string_view phase = cut(event.phase);
  const std::string_view algorithm = cut(event.algorithm);
  const auto shape = event.shape.first(std::min(event.shape.size(), TraceEvent::kMaxDimensions));
  const Header header{event.begin,
                      event.end,
                      event.bytes,
                      event.fused,
                      static_cast<std::uint16_t>(tensor.size()),
                      static_cast<std::uint16_t>(phase.size()),
                      static_cast<std::uint16_t>(algorithm.size()),
                      event.kind,
                      static_cast<std::uint8_t>(shape.size()),
                      event.dtype};
  const std::size_t size =
      sizeof(header) + tensor.size() + phase.size() + algorithm.size() + shape.size_bytes();
  if (size > memory_.size() - used_) return false;
  const auto put = [this](const void* data, std::size_t bytes) {
    if (bytes > 0) std::memcpy(memory_.data() + used_, data, bytes);
    used_ += bytes;
  };
  put(&header, sizeof(header));
  put(tensor.data(), tensor.size());
  put(phase.data(), phase.size());
  put(algorithm.data(), algorithm.size());
  put(shape.data(), shape.size_bytes());
  return true;
}

void TraceBuffer::for_each(const std::function<void(const TraceEvent&)>& body) const {
  for (std::size_t at = 0; at < used_;) {
    Header header;
    std::memcpy(&header, memory_.data() + at, sizeof(header));
    at += sizeof(header);
    const auto text = [&](std::size_t size) {
      const std::string_view view(reinterpret_cast<const char*>(memory_.data() + at), size);
      at += size;
      return view;
    };
    TraceEvent event;
    event.kind = header.kind;
    event.begin = header.begin;
    event.end = header.end;
    event.dtype = header.dtype;
    event.bytes = header.bytes;
    event.fused = header.fused;
    event.tensor = text(header.tensor_size);
    event.phase = text(header.phase_size);
    event.algorithm = text(header.algorithm_size);
    std::array<std::int64_t, TraceEvent::kMaxDimensions> shape{};
    const std::size_t shape_bytes = header.dimensions * sizeof(std::int64_t);
    std::memcpy(shape.data(), memory_.data() + at, shape_bytes);
    at += shape_bytes;
    event.shape = std::span(shape).first(header.dimensions);
    body(event);
  }
}

}  // namespace hvd::observe
