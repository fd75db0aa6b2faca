#include "state/digest.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <hvd/core/internal/text.hpp>

#include "collectives/tensor_traits.hpp"

namespace hvd::detail {

void Digest::add(std::uint64_t value) noexcept {
  // For a fixed value this maps states one to one, and for a fixed state it maps values one to one.
  state_ = splitmix64(std::rotl(state_, 5) + value + kGoldenRatio64);
}

void Digest::add(std::string_view text) noexcept { add_elements(bytes_of(text), 1); }

void Digest::add_elements(std::span<const std::byte> bytes, std::size_t element_size) noexcept {
  add(bytes.size());
  while (!bytes.empty()) {
    const std::size_t taken = std::min(bytes.size(), sizeof(std::uint64_t));
    std::byte word[sizeof(std::uint64_t)]{};
    std::memcpy(word, bytes.data(), taken);
    // This makes the word the same number on every machine: the first element has the lowest bits,
    // and each element is in little-endian order.
    if constexpr (std::endian::native == std::endian::big) {
      for (std::size_t at = 0; at < taken; at += element_size) {
        std::reverse(word + at, word + at + element_size);
      }
      std::reverse(word, word + sizeof word);
    }
    std::uint64_t value = 0;
    std::memcpy(&value, word, sizeof value);
    add(value);
    bytes = bytes.subspan(taken);
  }
  static_cast<void>(element_size);
}

void Digest::add_kind(const torch::Tensor& tensor) noexcept {
  add(static_cast<std::uint64_t>(tensor.scalar_type()));
  add(static_cast<std::uint64_t>(tensor.dim()));
  for (const std::int64_t size : tensor.sizes()) add(static_cast<std::uint64_t>(size));
}

void Digest::add_values(const torch::Tensor& tensor) {
  const torch::Tensor host = reals_of(plain_alias(tensor)).cpu().contiguous();
  add_elements({static_cast<const std::byte*>(host.const_data_ptr()), host.nbytes()},
               host.element_size());
}

void Digest::add_corners(const torch::Tensor& tensor) noexcept {
  if (!tensor.is_cpu() || tensor.layout() != torch::kStrided || tensor.numel() == 0) return;
  std::int64_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto size = static_cast<std::size_t>(tensor.element_size());
  const auto* const first = static_cast<const std::byte*>(tensor.const_data_ptr());
  add_elements({first, size}, std::min<std::size_t>(size, 8));
  add_elements({first + static_cast<std::size_t>(last) * size, size},
               std::min<std::size_t>(size, 8));
}

}  // namespace hvd::detail
