#include "net/merge_queue.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

namespace hvd::net {
namespace {

std::size_t hash_of(std::span<const std::byte> message) {
  return std::hash<std::string_view>{}(
      {reinterpret_cast<const char*>(message.data()), message.size()});
}

}  // namespace

void MergeQueue::push(int rank, std::span<const std::byte> message) {
  const std::size_t hash = hash_of(message);
  if (Waiting* const equal = find_equal(rank, message, hash)) {
    equal->entry.ranks.insert(rank);
    last_of_[rank] = by_content_.at(hash);
    return;
  }
  const std::uint64_t number = first_ + entries_.size();
  entries_.push_back({{RankSet(rank), Bytes(message.begin(), message.end())}, hash});
  bytes_ += message.size();
  last_of_[rank] = number;
  by_content_[hash] = number;
}

MergeQueue::Waiting* MergeQueue::find_equal(int rank, std::span<const std::byte> message,
                                            std::size_t hash) {
  const auto equal = by_content_.find(hash);
  if (equal == by_content_.end()) return nullptr;
  const auto last = last_of_.find(rank);
  if (last != last_of_.end() && last->second >= equal->second) return nullptr;
  Waiting& waiting = entries_[equal->second - first_];
  if (waiting.entry.ranks.ranges().size() >= kMaxRanges) return nullptr;
  const Bytes& there = waiting.entry.message;
  return std::equal(there.begin(), there.end(), message.begin(), message.end()) ? &waiting
                                                                                : nullptr;
}

MergeQueue::Entry MergeQueue::pop() {
  Waiting oldest = std::move(entries_.front());
  entries_.pop_front();
  const std::uint64_t number = first_++;
  bytes_ -= oldest.entry.message.size();
  const auto equal = by_content_.find(oldest.hash);
  if (equal != by_content_.end() && equal->second == number) by_content_.erase(equal);
  if (entries_.empty()) last_of_.clear();
  return std::move(oldest.entry);
}

}  // namespace hvd::net
