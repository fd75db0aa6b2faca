#include "arena_bound.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace hvd::bounds {
namespace {

constexpr std::size_t kMostOneShot = 64 << 10;  // bytes

}  // namespace

ArenaBound::ArenaBound(Meeting meeting, float* memory, std::size_t size, float* stage,
                       std::size_t stage_size)
    : Bound(meeting), memory_(memory), size_(size), stage_(stage), stage_size_(stage_size) {}

float* ArenaBound::memory(std::size_t bytes) {
  if (bytes > size_ * sizeof(float)) throw std::length_error("the arena is too small");
  barrier();  // waits until no rank reads any more
  float* const own = memory_ + meeting_.rank() * size_;
  std::fill_n(own, bytes / sizeof(float), 0.0F);
  barrier();
  return own;
}

std::vector<std::string> ArenaBound::ways(std::size_t bytes) const {
  std::vector<std::string> ways;
  if (bytes <= Line::kFloats * sizeof(float)) ways.emplace_back("line");
  if (bytes <= kMostOneShot) ways.emplace_back("one-shot");
  if (bytes > Line::kFloats * sizeof(float)) ways.emplace_back("direct");
  if (bytes > kMostOneShot) ways.insert(ways.end(), {"direct-ahead", "direct-stream"});
  return ways;
}

void ArenaBound::allreduce(float* data, std::size_t count, const std::string& way) {
  if (way == "line") return sum_in_line(data, count);
  if (way == "one-shot") return one_shot(data, count);
  if (way == "direct-stream") return direct(data, count, Store::stream, Fetch::ahead);
  direct(data, count, Store::cached, way == "direct-ahead" ? Fetch::ahead : Fetch::plain);
}

void ArenaBound::one_shot(float* data, std::size_t count) {
  // The two halves are used alternately, for the reason given at sum_in_line.
  const std::uint64_t number = ++one_shots_;
  const std::size_t half = number % 2 * (stage_size_ / 2);
  std::array<const float*, kMostRanks> inputs{};
  for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
    inputs[rank] = stage_ + rank * stage_size_ + half;
  }
  copy(data, stage_ + meeting_.rank() * stage_size_ + half, count, Store::cached, Fetch::ahead);
  meeting_.own().staged.store(number, std::memory_order_release);
  meeting_.wait_all(&Progress::staged, number);
  inputs[meeting_.rank()] = data;
  sum({inputs.data(), meeting_.size()}, {&data, 1}, count, Store::cached, Fetch::ahead);
}

void ArenaBound::direct(float* data, std::size_t count, Store store, Fetch fetch) {
  const std::uint64_t number = ++directs_;
  const Part part = part_of(count, meeting_.rank(), meeting_.size());
  const auto offset = static_cast<std::size_t>(data - (memory_ + meeting_.rank() * size_));
  std::array<float*, kMostRanks> places{};
  for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
    places[rank] = memory_ + rank * size_ + offset + part.begin;
  }
  meeting_.own().arrived.store(number, std::memory_order_release);
  meeting_.wait_all(&Progress::arrived, number);
  sum({places.data(), meeting_.size()}, {places.data(), meeting_.size()}, part.count, store, fetch);
  meeting_.own().reduced.store(number, std::memory_order_release);
  meeting_.wait_all(&Progress::reduced, number);
}

}  // namespace hvd::bounds
