#include "observe/interval_union.hpp"

#include <algorithm>

namespace hvd::observe {

// Intervals are reported when they end, so nearly all belong at the back.
void IntervalUnion::add(Clock::time_point begin, Clock::time_point end) {
  if (end <= begin) return;
  auto first = recent_.end();
  while (first != recent_.begin() && std::prev(first)->end >= begin) --first;
  auto last = first;
  std::chrono::nanoseconds covered{0};
  while (last != recent_.end() && last->begin <= end) {
    covered += last->end - last->begin;
    begin = std::min(begin, last->begin);
    end = std::max(end, last->end);
    ++last;
  }
  total_ += (end - begin) - covered;
  recent_.insert(recent_.erase(first, last), {begin, end});
  if (recent_.size() > 2 * kRemembered) recent_.erase(recent_.begin(), recent_.end() - kRemembered);
}

}  // namespace hvd::observe
