#include "transport/shm_ring.hpp"

#include <algorithm>
#include <cstring>

#include "transport/failure.hpp"

namespace hvd {
namespace {

static_assert(kShmPiece % kShmUnit == 0);

std::size_t padded(std::size_t size) { return (size + kShmUnit - 1) / kShmUnit * kShmUnit; }

// Counters are stored and loaded sequentially consistent: between a rank that publishes and then
// looks whether the other sleeps, and one that goes to sleep and then looks again, one must see.
constexpr auto kOrder = std::memory_order_seq_cst;

}  // namespace

std::size_t ShmWriter::room() const {
  const std::uint64_t pending = written_ - counters_->read.load(kOrder);
  if (pending > data_.size() || pending % kShmUnit != 0) {
    throw peer_violation(peer_, "impossible counter in shared memory");
  }
  return data_.size() - pending;
}

std::size_t ShmWriter::write(std::span<const std::byte> rest) {
  const std::size_t begin = written_ % data_.size();
  const std::size_t size = std::min({room(), data_.size() - begin, kShmPiece, rest.size()});
  if (size == 0) return 0;
  std::memcpy(data_.data() + begin, rest.data(), size);
  written_ += padded(size);  // not a multiple only at the end of a message
  counters_->written.store(written_, kOrder);
  return size;
}

std::size_t ShmReader::available() const {
  const std::uint64_t pending = counters_->written.load(kOrder) - read_;
  if (pending > data_.size() || pending % kShmUnit != 0) {
    throw peer_violation(peer_, "impossible counter in shared memory");
  }
  return pending;
}

std::span<const std::byte> ShmReader::peek(std::size_t rest) const {
  const std::size_t begin = read_ % data_.size();
  return data_.subspan(begin, std::min({available(), data_.size() - begin, kShmPiece, rest}));
}

void ShmReader::release(std::size_t size) {
  read_ += padded(size);
  counters_->read.store(read_, kOrder);
}

}  // namespace hvd
