#include "host/control.hpp"

namespace hvd {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kFirst = (sizeof(HostControl) + kPage - 1) / kPage * kPage;

}  // namespace

std::size_t HostSlots::slot(std::uint64_t chunk) noexcept {
  return kFirst + chunk % kDepth * kChunk;
}

std::size_t HostSlots::block_size() noexcept { return kFirst + kDepth * kChunk; }

}  // namespace hvd
