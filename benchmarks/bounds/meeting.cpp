#include "meeting.hpp"

#include <algorithm>

#include <hwy/cache_control.h>
#include <sched.h>

namespace hvd::bounds {

void Meeting::wait(const std::atomic<std::uint64_t>& counter, std::uint64_t least) const {
  constexpr int kSpins = 100;  // a few µs; after that the other rank may need this core
  for (int spins = 0; counter.load(std::memory_order_acquire) < least; ++spins) {
    if (yields_ || spins > kSpins) {
      ::sched_yield();
    } else {
      hwy::Pause();
    }
  }
}

void Meeting::wait_all(std::atomic<std::uint64_t> Progress::*counter, std::uint64_t least) const {
  for (std::size_t rank = 0; rank < size(); ++rank) {
    if (rank != rank_) wait(ranks_[rank].*counter, least);
  }
}

void Meeting::barrier() {
  own().met.store(++meetings_, std::memory_order_release);
  wait_all(&Progress::met, meetings_);
}

void Meeting::combine(std::span<double> values, peers::Combine how) {
  constexpr std::size_t kPiece = Progress::kExchange;
  for (std::size_t begin = 0; begin < values.size(); begin += kPiece) {
    const std::span<double> piece = values.subspan(begin, std::min(kPiece, values.size() - begin));
    std::copy(piece.begin(), piece.end(), own().exchange);
    barrier();
    for (std::size_t i = 0; i < piece.size(); ++i) {
      double all = ranks_[0].exchange[i];
      for (std::size_t rank = 1; rank < size(); ++rank) {
        const double other = ranks_[rank].exchange[i];
        all = how == peers::Combine::sum ? all + other : std::max(all, other);
      }
      piece[i] = all;
    }
    barrier();  // before any rank writes the next piece
  }
}

}  // namespace hvd::bounds
