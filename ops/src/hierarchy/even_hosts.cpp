#include "hierarchy/even_hosts.hpp"

#include <numeric>

#include "fusion/buffer.hpp"

namespace hvd {

std::optional<EvenHosts> EvenHosts::of(std::span<const int> host_of) {
  EvenHosts shape{1 + host_of.back(), 0};
  if (std::ssize(host_of) % shape.hosts != 0) return std::nullopt;
  shape.each = static_cast<int>(std::ssize(host_of)) / shape.hosts;
  for (int rank = 0; rank < std::ssize(host_of); ++rank) {
    if (host_of[static_cast<std::size_t>(rank)] != rank / shape.each) return std::nullopt;
  }
  return shape;
}

LaneParts::LaneParts(const EvenHosts& shape, int rank,
                     std::span<const std::span<const std::int64_t>> counts, DType dtype) {
  const auto each = static_cast<std::size_t>(shape.each);
  const auto place = static_cast<std::size_t>(rank) % each;
  const auto bytes = [&](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * size_of(dtype);
  };
  for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
    Tensor& own = tensors_.emplace_back();
    own.offset = bytes_;
    std::size_t in_tensor = 0;
    for (int host = 0; host < shape.hosts; ++host) {
      const auto of_host = counts[tensor].subspan(static_cast<std::size_t>(host) * each, each);
      pieces_.push_back({tensor, host, in_tensor, bytes_, of_host});
      in_tensor += bytes(std::accumulate(of_host.begin(), of_host.end(), std::int64_t{0}));
      own.counts.push_back(of_host[place]);
      bytes_ += bytes(of_host[place]);
    }
    // The next tensor's begin is aligned for SIMD.
    bytes_ = (bytes_ + FusionBuffer::kAlignment - 1) / FusionBuffer::kAlignment *
             FusionBuffer::kAlignment;
  }
}

}  // namespace hvd
