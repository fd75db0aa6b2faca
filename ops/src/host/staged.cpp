#include "host/staged.hpp"

#include <algorithm>

#include "fusion/address.hpp"
#include "fusion/vector_copy.hpp"

namespace hvd::detail {
namespace {

/// It costs less to gather pieces of fewer bytes in a slot than to reduce them one by one.
constexpr std::int64_t kPieceBytes = 4096;

}  // namespace

StagedAllreduce::StagedAllreduce(HostGroup& group, std::span<const TensorSlice> tensors,
                                 const HostArithmetic& arithmetic, FusionBuffer& scratch,
                                 CallObserver* observer, Deadline deadline)
    : group_(group),
      tensors_(tensors),
      arithmetic_(arithmetic),
      scratch_(scratch),
      observer_(tensors.size() > 1 ? observer : nullptr),
      deadline_(deadline),
      size_(arithmetic.element()),
      per_chunk_(static_cast<std::int64_t>(HostSlots::kChunk / size_)),
      list_(group.workspace().list),
      from_(group.workspace().from),
      to_(group.workspace().to) {
  list_.clear();
  from_.resize(static_cast<std::size_t>(group.size()));
  for (const TensorSlice& tensor : tensors) {
    list_.add(tensor.count);
    absent_ = absent_ || (tensor.input == nullptr && tensor.count > 0);
  }
  whole_ = static_cast<std::size_t>(list_.total()) * size_ <= kWhole;
  first_ = group_.next_chunk();
}

std::uint64_t StagedAllreduce::count() const {
  return static_cast<std::uint64_t>((list_.total() + per_chunk_ - 1) / per_chunk_);
}

StagedAllreduce::Chunk StagedAllreduce::chunk(std::uint64_t index) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * per_chunk_;
  return {first_ + index, {begin, std::min(begin + per_chunk_, list_.total())}};
}

/// Returns the part of a chunk that `position` reduces: whole cache lines, except at the chunk's
/// end.
Range StagedAllreduce::share(const Chunk& chunk, int position) const {
  const std::int64_t line = arithmetic_.line();
  const std::int64_t lines = (chunk.elements.size() + line - 1) / line;
  const std::int64_t each = (lines + group_.size() - 1) / group_.size() * line;
  const auto at = [&](std::int64_t k) {
    return std::min(chunk.elements.begin + k * each, chunk.elements.end);
  };
  return {at(position), at(position + 1)};
}

std::byte* StagedAllreduce::in_slot(const Chunk& chunk, int position, std::int64_t at) const {
  return element(group_.slot(position, chunk.number), at - chunk.elements.begin, size_);
}

/// Tells whether this rank reads its own share in the caller's memory, without a copy to its slot.
/// The share is then reduced tensor by tensor, so its pieces must not be too small.
bool StagedAllreduce::in_place(Range own) const {
  if (absent_ || !arithmetic_.as_given()) return false;
  std::int64_t pieces = 0;
  list_.for_each_piece(own, [&](std::size_t, Range, std::int64_t) { ++pieces; });
  return pieces <= 1 + own.size() * static_cast<std::int64_t>(size_) / kPieceBytes;
}

Clock::time_point StagedAllreduce::now() const {
  return observer_ == nullptr ? Clock::time_point() : Clock::now();
}

std::uint64_t StagedAllreduce::copy_ahead() {
  if (!group_.is_free(first_)) return 0;
  load(chunk(0));
  return first_ + 1;
}

std::uint64_t StagedAllreduce::begin(bool ahead) {
  group_.take_chunks(count());
  began_ = now();
  if (ahead) {
    group_.publish_copied(first_ + 1);
  } else {
    copy_in(0);
  }
  return first_ + 1;
}

void StagedAllreduce::run() {
  if (whole_) return run_whole();
  // In step s this rank copies its contribution to chunk s into its slot, then reduces its share of
  // chunk s-1 and stores the result in its output and in the other ranks' slots, then copies their
  // shares of chunk s-2 out of its slot. Three slots are enough: a rank that begins chunk c has
  // copied out chunk c-3, so it has seen all others reduce c-3, and none uses that slot any more.
  // Only where an exchange has used the slot before does it have to wait for it.
  const std::uint64_t chunks = count();
  for (std::uint64_t step = 1; step < chunks + 2; ++step) {
    if (step < chunks) copy_in(step);
    if (step - 1 < chunks) reduce(chunk(step - 1));
    if (step >= 2) copy_out(chunk(step - 2));
  }
  tell_observer();
}

/// Reduces the only chunk as a whole, from all ranks' slots and into this rank's memory. No result
/// is written to a slot, so ranks do not wait for each other's results.
void StagedAllreduce::run_whole() {
  const Chunk all = chunk(0);
  wait_for_copies(all);
  for (int position = 0; position < group_.size(); ++position) {
    from_[static_cast<std::size_t>(position)] = group_.slot(position, all.number);
  }
  const bool lone = tensors_.size() == 1;
  std::byte* const to =
      lone ? tensors_.front().output
           : scratch_.reserve(static_cast<std::size_t>(all.elements.size()) * size_);
  if (to != nullptr) reduce_all(arithmetic_.reduction(), {&to, 1}, from_, all.elements.size());
  group_.publish_reduced(all.number + 1);
  if (lone) return;
  const Clock::time_point from = now();
  unload(all, all.elements, to);
  out_ += now() - from;
  tell_observer();
}

void StagedAllreduce::tell_observer() const {
  if (observer_ == nullptr) return;
  // The copies alternated with other work. They are reported as one copy at the begin and one at
  // the end, of the same durations.
  const Clock::time_point end = now();
  observer_->copied_in(began_, began_ + in_);
  observer_->copied_out(end - out_, end);
}

void StagedAllreduce::load(const Chunk& chunk, Range range) const {
  list_.for_each_piece(range, [&](std::size_t tensor, Range part, std::int64_t at) {
    std::byte* const to = in_slot(chunk, group_.self(), at);
    const std::byte* const from = element(tensors_[tensor].input, part.begin, size_);
    if (from != nullptr && arithmetic_.as_given()) {
      copy_vectors(to, from, static_cast<std::size_t>(part.size()) * size_);
    } else {
      arithmetic_.load(to, from, part.size());
    }
  });
}

void StagedAllreduce::unload(const Chunk& chunk, Range range, const std::byte* from) const {
  list_.for_each_piece(range, [&](std::size_t tensor, Range part, std::int64_t at) {
    std::byte* const to = element(tensors_[tensor].output, part.begin, size_);
    if (to == nullptr) return;
    copy_vectors(to, element(from, at - chunk.elements.begin, size_),
                 static_cast<std::size_t>(part.size()) * size_);
  });
}

void StagedAllreduce::copy_in(std::uint64_t index) {
  const Chunk next = chunk(index);
  group_.wait_free(next.number, deadline_);
  const Clock::time_point from = now();
  load(next);
  group_.publish_copied(next.number + 1);
  in_ += now() - from;
}

/// Copies into this rank's slot what the others reduce, and also its own share where `reduce` does
/// not read that in place.
void StagedAllreduce::load(const Chunk& chunk) const {
  const Range own = share(chunk, group_.self());
  if (!whole_ && in_place(own)) {
    load(chunk, {chunk.elements.begin, own.begin});
    load(chunk, {own.end, chunk.elements.end});
  } else {
    load(chunk, chunk.elements);
  }
}

void StagedAllreduce::wait_for_copies(const Chunk& chunk) {
  for (int position = 0; position < group_.size(); ++position) {
    if (position != group_.self()) group_.wait_copied(position, chunk.number + 1, deadline_);
  }
}

void StagedAllreduce::reduce(const Chunk& chunk) {
  wait_for_copies(chunk);
  const Range own = share(chunk, group_.self());
  if (in_place(own)) {
    reduce_in_place(chunk, own);
  } else {
    to_.clear();
    for (int position = 0; position < group_.size(); ++position) {
      to_.push_back(in_slot(chunk, position, own.begin));
      from_[static_cast<std::size_t>(position)] = to_.back();
    }
    reduce_all(arithmetic_.reduction(), to_, from_, own.size());
    unload(chunk, own, group_.slot(group_.self(), chunk.number));
  }
  group_.publish_reduced(chunk.number + 1);
}

void StagedAllreduce::reduce_in_place(const Chunk& chunk, Range own) {
  list_.for_each_piece(own, [&](std::size_t tensor, Range part, std::int64_t at) {
    to_.clear();
    for (int position = 0; position < group_.size(); ++position) {
      const auto rank = static_cast<std::size_t>(position);
      if (position == group_.self()) {
        from_[rank] = element(tensors_[tensor].input, part.begin, size_);
        std::byte* const output = element(tensors_[tensor].output, part.begin, size_);
        if (output != nullptr) to_.push_back(output);
      } else {
        from_[rank] = in_slot(chunk, position, at);
        to_.push_back(in_slot(chunk, position, at));
      }
    }
    reduce_all(arithmetic_.reduction(), to_, from_, part.size());
  });
}

void StagedAllreduce::copy_out(const Chunk& chunk) {
  for (int position = 0; position < group_.size(); ++position) {
    if (position != group_.self()) group_.wait_reduced(position, chunk.number + 1, deadline_);
  }
  const Clock::time_point from = now();
  const Range own = share(chunk, group_.self());
  const std::byte* const slot = group_.slot(group_.self(), chunk.number);
  unload(chunk, {chunk.elements.begin, own.begin}, slot);
  unload(chunk, {own.end, chunk.elements.end}, slot);
  out_ += now() - from;
}

}  // namespace hvd::detail
