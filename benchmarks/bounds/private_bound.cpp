#include "private_bound.hpp"

#include <algorithm>
#include <array>
#include <charconv>

#include "kernels.hpp"

namespace hvd::bounds {
namespace {

constexpr std::size_t kMostOneShot = 256 << 10;  // bytes
constexpr std::size_t kSizes[] = {32 << 10, 64 << 10, 128 << 10, PrivateBound::kSlot};
constexpr std::size_t kLarge = 1 << 20;  // bytes; from here on, -stream is tried and 32 KiB is not

}  // namespace

/// The chunks of one call's tensor. `first` is the number of its first chunk, counted over all
/// calls.
struct PrivateBound::Chunks {
  float* data;
  std::size_t count;
  std::size_t size;  ///< floats in a chunk; the last chunk may have fewer
  std::uint64_t first;
  bool stream;
  bool back;  ///< sums return in the slots of the contributions
  Fetch fetch;

  [[nodiscard]] std::uint64_t end() const noexcept { return first + (count + size - 1) / size; }
  [[nodiscard]] float* begin_of(std::uint64_t chunk) const noexcept {
    return data + (chunk - first) * size;
  }
  [[nodiscard]] std::size_t count_of(std::uint64_t chunk) const noexcept {
    return std::min(size, count - static_cast<std::size_t>(chunk - first) * size);
  }
};

PrivateBound::PrivateBound(Meeting meeting, float* stage, std::size_t stage_size)
    : Bound(meeting), stage_(stage), stage_size_(stage_size) {}

std::vector<std::string> PrivateBound::ways(std::size_t bytes) const {
  if (bytes <= Line::kFloats * sizeof(float)) return {"line"};
  std::vector<std::string> ways;
  if (bytes <= kMostOneShot) ways.emplace_back("one-shot");
  for (const std::size_t size : kSizes) {
    if (bytes <= size / 2 || (bytes >= kLarge && size == kSizes[0])) continue;
    const std::string name = std::to_string(size >> 10) + "K";
    ways.push_back(name);
    ways.push_back(name + "-back");
    ways.push_back(name + "-back-plain");
    if (bytes >= kLarge) ways.push_back(name + "-stream");
  }
  return ways;
}

void PrivateBound::allreduce(float* data, std::size_t count, const std::string& way) {
  if (way == "line") return sum_in_line(data, count);
  if (way == "one-shot") return one_shot(data, count);
  std::size_t kib = 0;
  std::from_chars(way.data(), way.data() + way.size(), kib);
  chunked({.data = data,
           .count = count,
           .size = (kib << 10) / sizeof(float),
           .first = chunks_,
           .stream = way.ends_with("-stream"),
           .back = way.find("-back") != std::string::npos,
           .fetch = way.ends_with("-plain") ? Fetch::plain : Fetch::ahead});
}

float* PrivateBound::slot(std::size_t rank, std::uint64_t chunk, bool out) const noexcept {
  const std::size_t index = chunk % kDepth + (out ? kDepth : 0);
  return stage_ + rank * stage_size_ + index * kSlot / sizeof(float);
}

void PrivateBound::one_shot(float* data, std::size_t count) {
  // The two slots are used alternately, for the reason given at sum_in_line. The slots of chunks
  // are all free between calls.
  const std::uint64_t number = ++one_shots_;
  std::array<const float*, kMostRanks> inputs{};
  for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
    inputs[rank] = slot(rank, number % 2, false);
  }
  copy(data, slot(meeting_.rank(), number % 2, false), count, Store::cached, Fetch::ahead);
  meeting_.own().staged.store(number, std::memory_order_release);
  meeting_.wait_all(&Progress::staged, number);
  inputs[meeting_.rank()] = data;
  sum({inputs.data(), meeting_.size()}, {&data, 1}, count, Store::cached, Fetch::ahead);
}

void PrivateBound::chunked(const Chunks& chunks) {
  // When a rank writes a slot, all other ranks have finished reading it. Before this rank copies a
  // chunk in, the others have reduced all but the last two chunks. Before it writes a sum, the
  // others have copied that chunk in, and so have copied out all but the last two chunks before it.
  const std::uint64_t end = chunks.end();
  Progress& own = meeting_.own();
  copy_in(chunks, chunks.first);
  own.arrived.store(chunks.first + 1, std::memory_order_release);
  for (std::uint64_t chunk = chunks.first; chunk < end; ++chunk) {
    if (chunk + 1 < end) {
      copy_in(chunks, chunk + 1);
      own.arrived.store(chunk + 2, std::memory_order_release);
    }
    meeting_.wait_all(&Progress::arrived, chunk + 1);
    reduce(chunks, chunk);
    own.reduced.store(chunk + 1, std::memory_order_release);
    if (chunk > chunks.first) {
      meeting_.wait_all(&Progress::reduced, chunk);
      copy_out(chunks, chunk - 1);
    }
  }
  meeting_.wait_all(&Progress::reduced, end);
  copy_out(chunks, end - 1);
  chunks_ = end;
}

/// Copies in every part except this rank's own.
void PrivateBound::copy_in(const Chunks& chunks, std::uint64_t chunk) {
  const std::size_t count = chunks.count_of(chunk);
  const Part part = part_of(count, meeting_.rank(), meeting_.size());
  const std::size_t end = part.begin + part.count;
  const float* const from = chunks.begin_of(chunk);
  float* const to = slot(meeting_.rank(), chunk, false);
  copy(from, to, part.begin, Store::cached, chunks.fetch);
  copy(from + end, to + end, count - end, Store::cached, chunks.fetch);
}

/// Reduces this rank's part into its place, and into the slot from which the others read it: this
/// rank's slot or theirs.
void PrivateBound::reduce(const Chunks& chunks, std::uint64_t chunk) {
  const Part part = part_of(chunks.count_of(chunk), meeting_.rank(), meeting_.size());
  float* const own = chunks.begin_of(chunk) + part.begin;
  std::array<const float*, kMostRanks> inputs{};
  std::array<float*, kMostRanks> outputs{own};
  std::size_t output_count = 1;
  for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
    float* const from = slot(rank, chunk, false) + part.begin;
    inputs[rank] = rank == meeting_.rank() ? own : from;
    if (chunks.back && rank != meeting_.rank()) outputs[output_count++] = from;
  }
  if (!chunks.back) outputs[output_count++] = slot(meeting_.rank(), chunk, true) + part.begin;
  sum({inputs.data(), meeting_.size()}, {outputs.data(), output_count}, part.count,
      chunks.stream ? Store::stream_first : Store::cached, chunks.fetch);
}

/// Copies out the other ranks' parts, from this rank's slot or theirs.
void PrivateBound::copy_out(const Chunks& chunks, std::uint64_t chunk) {
  for (std::size_t rank = 0; rank < meeting_.size(); ++rank) {
    if (rank == meeting_.rank()) continue;
    const Part part = part_of(chunks.count_of(chunk), rank, meeting_.size());
    const float* const from =
        chunks.back ? slot(meeting_.rank(), chunk, false) : slot(rank, chunk, true);
    copy(from + part.begin, chunks.begin_of(chunk) + part.begin, part.count,
         chunks.stream ? Store::stream : Store::cached, chunks.fetch);
  }
}

}  // namespace hvd::bounds
