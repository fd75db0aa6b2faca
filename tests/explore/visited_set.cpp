#include "visited_set.hpp"

#include <istream>
#include <ostream>
#include <stdexcept>
#include <utility>

namespace hvd::explore {

StateHash& VisitedSet::slot_of(const StateHash& hash) {
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash.low & mask;
  while (slots_[at] != StateHash() && slots_[at] != hash) at = (at + 1) & mask;
  return slots_[at];
}

bool VisitedSet::insert(const StateHash& hash) {
  StateHash& slot = slot_of(hash);
  if (slot == hash) return false;
  slot = hash;
  sum_ += hash.high;
  if (++size_ * 4 < slots_.size() * 3) return true;
  std::vector<StateHash> old(2 * slots_.size());
  std::swap(old, slots_);
  for (const StateHash& one : old) {
    if (one != StateHash()) slot_of(one) = one;
  }
  return true;
}

void VisitedSet::save(std::ostream& out) const {
  out.write(reinterpret_cast<const char*>(&size_), sizeof(size_));
  for (const StateHash& one : slots_) {
    if (one != StateHash()) out.write(reinterpret_cast<const char*>(&one), sizeof(one));
  }
}

void VisitedSet::load(std::istream& in) {
  std::uint64_t count = 0;
  in.read(reinterpret_cast<char*>(&count), sizeof(count));
  StateHash one;
  for (; count > 0 && in.read(reinterpret_cast<char*>(&one), sizeof(one)); --count) insert(one);
  if (!in) throw std::runtime_error("the file of visited states is too short");
}

}  // namespace hvd::explore
