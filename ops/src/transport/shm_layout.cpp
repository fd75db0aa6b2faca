#include "transport/shm_layout.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace hvd {
namespace {

constexpr std::size_t kPage = 4096;
/// A ring larger than the cache only costs misses; all rings of a rank stay below 8 MiB until
/// there are so many ranks that each has the least.
constexpr std::size_t kLargest = std::size_t{1} << 20;
constexpr std::size_t kLeast = std::size_t{64} << 10;
constexpr std::size_t kBudget = std::size_t{8} << 20;

std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

/// A rank does not send to itself.
std::size_t slot(int owner, int sender) {
  return static_cast<std::size_t>(sender < owner ? sender : sender - 1);
}

}  // namespace

ShmLayout::ShmLayout(int ranks) noexcept
    : ranks_(ranks),
      capacity_(
          std::clamp(std::bit_floor(kBudget / static_cast<std::size_t>(std::max(1, ranks - 1))),
                     kLeast, kLargest)) {}

std::size_t ShmLayout::counters(int owner, int sender) const noexcept {
  return doorbell() + sizeof(ShmDoorbell) + slot(owner, sender) * sizeof(ShmCounters);
}

std::size_t ShmLayout::data_begin() const noexcept {
  return round_up(
      doorbell() + sizeof(ShmDoorbell) + static_cast<std::size_t>(ranks_ - 1) * sizeof(ShmCounters),
      kPage);
}

std::size_t ShmLayout::data(int owner, int sender) const noexcept {
  return data_begin() + slot(owner, sender) * capacity_;
}

std::size_t ShmLayout::size() const noexcept {
  return data_begin() + static_cast<std::size_t>(ranks_ - 1) * capacity_;
}

ShmHeader ShmLayout::header(int owner) const noexcept {
  return {.magic = kShmMagic,
          .version = kShmVersion,
          .ranks = static_cast<std::uint32_t>(ranks_),
          .owner = static_cast<std::uint32_t>(owner),
          .reserved = 0,
          .capacity = capacity_};
}

std::string ShmLayout::problem_with(std::span<const std::byte> bytes, int owner) const {
  ShmHeader found;
  if (bytes.size() < sizeof found) return "it is too small";
  std::memcpy(&found, bytes.data(), sizeof found);
  const ShmHeader wanted = header(owner);
  if (found.magic != wanted.magic) return "it is something else";
  if (found.version != wanted.version) {
    return fmt::format("its version is {}, not {}", found.version, wanted.version);
  }
  if (found.owner != wanted.owner) return fmt::format("it belongs to rank {}", found.owner);
  if (found.ranks != wanted.ranks || found.capacity != wanted.capacity) {
    return fmt::format("it is made for {} ranks and rings of {} bytes", found.ranks,
                       found.capacity);
  }
  return {};
}

}  // namespace hvd
