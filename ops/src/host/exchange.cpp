#include "host/exchange.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fusion/blocks.hpp"
#include "reduce/reduce_all.hpp"

namespace hvd::detail {
namespace {

/// Reading in the giver's arena takes a second turn. It pays from this multiple of
/// `HostGroup::kSmall` on.
constexpr std::size_t kDirect = 8;
/// A rank publishes this instead of a number of chunks when its message has offsets in its arena.
constexpr std::uint64_t kInArena = ~std::uint64_t{0};
constexpr std::size_t kLine = 64;

using Offset = std::uint64_t;  // an offset in the segment of a rank

}  // namespace

HostExchange::HostExchange(HostGroup& group, const HostArena& arena,
                           const HostArithmetic* reduction, Deadline deadline)
    : group_(group),
      arena_(arena),
      reduction_(reduction),
      deadline_(deadline),
      give_(group.workspace().give),
      take_(group.workspace().take) {}

std::size_t HostExchange::window() const noexcept {
  return give_.rows() == 1 ? 0 : static_cast<std::size_t>(group_.self());
}

void HostExchange::run(std::uint64_t name, std::optional<std::size_t> most) {
  if (!reduces() && give_.rows() > 1) give_.drop(window());  // keep_own copies this row
  if (most && *most * give_.rows() <= HostGroup::kSmall) return in_one_turn(name, *most);

  // Every rank publishes where its tensors lie in its arena, or how many chunks of them will pass
  // through its slots. It has filled the first slot before, so that tensors which fit into one
  // chunk need no second turn.
  width_ = HostSlots::kChunk / give_.rows() / kLine * kLine;
  first_ = group_.next_chunk();
  const std::uint64_t chunks = (give_.most() + width_ - 1) / width_;
  const auto own = give_.row(window());
  own_filled_ = reduces() && (!reduction_->as_given() ||
                              std::any_of(own.begin(), own.end(), [](const auto& piece) {
                                return piece.data == nullptr && piece.bytes > 0;
                              }));
  const bool direct_here = all_in_arena();
  if (direct_here) {
    write_offsets();
  } else {
    given_chunks_ = chunks;
    give_chunk(0);
  }
  group_.publish(name, direct_here ? kInArena : chunks);
  keep_own();

  std::vector<std::uint64_t>& given = group_.workspace().given;
  given.clear();
  for (int position = 0; position < group_.size(); ++position) {
    given.push_back(group_.await(position, name, deadline_));
  }
  const auto direct_ranks = std::count(given.begin(), given.end(), kInArena);
  const bool direct = direct_ranks == group_.size() || (direct_ranks > 0 && !reduces());
  if (direct) reduces() ? reduce_directly() : move_directly();
  group_.end_turn();

  // A reduction goes through the slots unless all ranks have their tensors in arenas. A rank that
  // has published offsets in vain fills its first slot only now, so the others wait for it
  // (`late`).
  const bool late = direct_ranks > 0 && !direct;
  std::replace(given.begin(), given.end(), kInArena, late ? chunks : 0);
  if (late && direct_here) {
    given_chunks_ = chunks;
    give_chunk(0);
  }
  const std::uint64_t count = *std::max_element(given.begin(), given.end());
  group_.take_chunks(count);
  for (std::uint64_t index = 0; index < count; ++index) {
    give_chunk(index + 1);
    take_chunk(index, index == 0 && !late);
  }
  if (count > 1 || late) wait_for_givers();
  if (direct) group_.barrier(name + 1, deadline_);  // afterwards no rank reads this arena any more
}

/// Returns when every rank has filled its last slot. A rank whose process ends is lost to all ranks
/// that wait, also to those that wait for another rank. So no rank returns while another one may
/// still wait in this operation.
void HostExchange::wait_for_givers() {
  const std::vector<std::uint64_t>& given = group_.workspace().given;
  for (int position = 0; position < group_.size(); ++position) {
    const std::uint64_t chunks = given[static_cast<std::size_t>(position)];
    if (chunks > 0) group_.wait_copied(position, first_ + chunks, deadline_);
  }
}

/// Copies what this rank gives to itself straight from input to output.
void HostExchange::keep_own() {
  if (reduces()) return;
  const auto self = static_cast<std::size_t>(group_.self());
  const auto from = give_.row(window());
  const auto to = take_.row(self);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].data != nullptr) copy_bytes(to[i].data, from[i].data, to[i].bytes);
  }
  take_.drop(self);
}

/// Publishes all rows in this rank's message, and takes from the messages of the others.
void HostExchange::in_one_turn(std::uint64_t name, std::size_t most) {
  width_ = most;
  const std::size_t bytes = most * give_.rows();
  fill(group_.outgoing(bytes), 0);
  group_.publish(name);
  keep_own();
  for (int position = 0; position < group_.size(); ++position) {
    group_.await(position, name, deadline_);
  }
  const auto from = [&](int position) { return group_.incoming(position, bytes); };
  reduces() ? reduce_from(0, from) : take_from(0, from);
  group_.end_turn();
}

bool HostExchange::all_in_arena() const noexcept {
  const auto pieces = give_.pieces();
  if (pieces.size() * sizeof(Offset) > HostMessage::kLong) return false;
  if (reduces() && !reduction_->as_given()) return false;
  std::size_t bytes = 0;
  for (const auto& piece : pieces) {
    if (piece.bytes > 0 && !arena_.contains(piece.data, piece.bytes)) return false;
    bytes += piece.bytes;
  }
  return bytes >= kDirect * HostGroup::kSmall;
}

void HostExchange::write_offsets() const noexcept {
  const auto pieces = give_.pieces();
  std::byte* to = group_.outgoing(pieces.size() * sizeof(Offset));
  for (const auto& piece : pieces) {
    const Offset offset = piece.bytes > 0 ? arena_.offset_of(piece.data) : 0;
    std::memcpy(to, &offset, sizeof offset);
    to += sizeof offset;
  }
}

/// Returns the address of a piece that `position` gives to this rank, from the offset in its
/// message.
const std::byte* HostExchange::source(int position, std::size_t piece) const {
  const auto pieces = give_.pieces();
  const std::size_t each = pieces.size() / give_.rows();
  const std::size_t row = reduces() ? 0 : static_cast<std::size_t>(position);
  Offset offset = 0;
  std::memcpy(&offset,
              group_.incoming(position, pieces.size() * sizeof offset) +
                  (window() * each + piece) * sizeof offset,
              sizeof offset);
  return group_.at(position, offset, take_.row(row)[piece].bytes);
}

void HostExchange::move_directly() {
  const int size = group_.size();
  for (int distance = 1; distance < size; ++distance) {  // each rank begins with another one
    const int position = (group_.self() + distance) % size;
    if (group_.detail(position) != kInArena) continue;
    const auto row = static_cast<std::size_t>(position);
    const auto pieces = take_.row(row);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].bytes == 0 || pieces[i].data == nullptr) continue;
      copy_bytes(pieces[i].data, source(position, i), pieces[i].bytes);
    }
    take_.drop(row);
  }
}

void HostExchange::reduce_directly() {
  std::size_t given = 0;
  for (std::size_t row = 0; row < give_.rows(); ++row) given += give_.bytes(row);
  const bool large = given * static_cast<std::size_t>(group_.size()) > kHostStreamed;
  std::vector<const std::byte*>& from = group_.workspace().from;
  from.resize(static_cast<std::size_t>(group_.size()));
  const auto pieces = take_.row(0);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].bytes == 0 || pieces[i].data == nullptr) continue;
    for (int position = 0; position < group_.size(); ++position) {
      from[static_cast<std::size_t>(position)] = source(position, i);
    }
    reduce_all(reduction_->reduction(), {&pieces[i].data, 1}, from,
               static_cast<std::int64_t>(pieces[i].bytes / reduction_->element()),
               large ? Stores::streamed : Stores::cached);
  }
}

void HostExchange::give_chunk(std::uint64_t index) {
  if (index >= given_chunks_) return;
  const std::uint64_t number = first_ + index;
  group_.wait_free(number, deadline_);
  fill(group_.slot(group_.self(), number), index);
  group_.publish_copied(number + 1);
}

void HostExchange::take_chunk(std::uint64_t index, bool heard_of) {
  const std::uint64_t number = first_ + index;
  const auto from = [&](int position) -> const std::byte* {
    if (!heard_of) group_.wait_copied(position, number + 1, deadline_);
    return group_.slot(position, number);
  };
  reduces() ? reduce_from(index, from) : take_from(index, from);
  group_.publish_reduced(number + 1);
}

/// Writes to `to` the chunk with this index of every row that this rank gives, row after row.
void HostExchange::fill(std::byte* to, std::uint64_t index) const {
  const std::size_t begin = index * width_;
  for (std::size_t row = 0; row < give_.rows(); ++row, to += width_) {
    if (reduces() && !own_filled_ && row == window()) continue;
    const auto pieces = give_.row(row);
    give_.for_each_part(row, begin, begin + width_, [&](auto piece, auto offset, auto bytes) {
      const std::byte* const data = pieces[piece].data;
      std::byte* const at = to + pieces[piece].begin + offset - begin;
      if (reduces()) {
        reduction_->load(at, data == nullptr ? data : data + offset,
                         static_cast<std::int64_t>(bytes / reduction_->element()));
      } else {
        std::memcpy(at, data + offset, bytes);
      }
    });
  }
}

template <class From>
void HostExchange::take_from(std::uint64_t index, From from) {
  const std::size_t begin = index * width_;
  for (int distance = 1; distance < group_.size(); ++distance) {
    const int position = (group_.self() + distance) % group_.size();
    const auto row = static_cast<std::size_t>(position);
    if (take_.bytes(row) <= begin) continue;
    const std::byte* const chunk = from(position) + window() * width_;
    const auto pieces = take_.row(row);
    take_.for_each_part(row, begin, begin + width_, [&](auto piece, auto offset, auto bytes) {
      if (pieces[piece].data == nullptr) return;
      std::memcpy(pieces[piece].data + offset, chunk + pieces[piece].begin + offset - begin, bytes);
    });
  }
}

template <class From>
void HostExchange::reduce_from(std::uint64_t index, From from) {
  const std::size_t begin = index * width_;
  if (take_.bytes(0) <= begin) return;
  const auto size = static_cast<std::size_t>(group_.size());
  std::vector<const std::byte*>& chunks = group_.workspace().chunks;
  std::vector<const std::byte*>& sources = group_.workspace().from;
  chunks.resize(size);
  sources.resize(size);
  for (int position = 0; position < group_.size(); ++position) {
    const bool given = position != group_.self() || own_filled_;
    chunks[static_cast<std::size_t>(position)] =
        given ? from(position) + window() * width_ : nullptr;
  }
  const auto own = give_.row(window());
  const auto pieces = take_.row(0);
  take_.for_each_part(0, begin, begin + width_, [&](auto piece, auto offset, auto bytes) {
    if (pieces[piece].data == nullptr) return;
    for (std::size_t rank = 0; rank < size; ++rank) {
      sources[rank] = chunks[rank] == nullptr ? own[piece].data + offset
                                              : chunks[rank] + pieces[piece].begin + offset - begin;
    }
    std::byte* const to = pieces[piece].data + offset;
    reduce_all(reduction_->reduction(), {&to, 1}, sources,
               static_cast<std::int64_t>(bytes / reduction_->element()));
  });
}

}  // namespace hvd::detail
