#include "host/residency.hpp"

#include <cstddef>
#include <cstring>

namespace hvd {
namespace {

constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

void Residency::look_at(std::span<const TensorSlice> tensors, std::size_t element,
                        const HostArena& arena, bool as_given) {
  static_assert(sizeof(Place) * kMost == HostMessage::kLong);
  element_ = element;
  here_ = 0;
  places_.clear();
  bytes_.clear();
  for (const TensorSlice& tensor : tensors) {
    const std::size_t bytes = static_cast<std::size_t>(tensor.count) * element;
    const bool here = as_given && bytes > 0 && arena.contains(tensor.input, bytes) &&
                      arena.contains(tensor.output, bytes);
    places_.push_back(here ? Place{arena.offset_of(tensor.input), arena.offset_of(tensor.output)}
                           : Place{kNowhere, kNowhere});
    bytes_.push_back(bytes);
    if (here) ++here_;
  }
}

std::vector<BlockList::Block> Residency::told() const {
  std::vector<BlockList::Block> found;
  for (std::size_t tensor = 0; tensor < places_.size(); ++tensor) {
    const auto [input, output] = places_[tensor];
    if (output == kNowhere) continue;
    found.push_back({input, bytes_[tensor]});
    if (output != input) found.push_back({output, bytes_[tensor]});
  }
  return found;
}

void Residency::say(HostGroup& group, std::uint64_t name, std::uint64_t copied) const {
  const std::size_t bytes = places_.size() * sizeof(Place);
  std::byte* const outbox = group.outbox(bytes);
  if (here_ > 0) {
    std::memcpy(outbox, places_.data(), bytes);
  } else {  // no need to tell of each
    std::memcpy(outbox, &kNowhere, sizeof kNowhere);
  }
  group.post(name, 2 * copied + (here_ > 0 ? 1 : 0));
}

void Residency::agree(HostGroup& group, std::span<const TensorSlice> tensors, std::uint64_t name,
                      Deadline deadline) {
  bool some = true;
  for (int position = 0; position < group.size(); ++position) {
    const std::uint64_t detail = group.hear(position, name, deadline);
    some = detail % 2 != 0 && some;
    group.note_copied(position, detail / 2);
  }
  direct_.clear();
  staged_.clear();
  if (some) {
    sort(group, tensors);
  } else {
    staged_.assign(tensors.begin(), tensors.end());
  }
  group.end_turn();
}

void Residency::sort(const HostGroup& group, std::span<const TensorSlice> tensors) {
  for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const std::size_t bytes = static_cast<std::size_t>(tensors[tensor].count) * element_;
    if (bytes == 0) continue;
    const std::size_t before = direct_.inputs.size();
    if (is_direct(group, tensor, bytes)) {
      direct_.list.add(tensors[tensor].count);
    } else {
      direct_.inputs.resize(before);
      direct_.outputs.resize(before);
      staged_.push_back(tensors[tensor]);
    }
  }
}

bool Residency::is_direct(const HostGroup& group, std::size_t tensor, std::size_t bytes) {
  for (int position = 0; position < group.size(); ++position) {
    Place place;
    std::memcpy(&place,
                group.heard(position, places_.size() * sizeof place) + tensor * sizeof place,
                sizeof place);
    if (place.input == kNowhere || place.output == kNowhere) return false;
    direct_.inputs.push_back(group.at(position, place.input, bytes));
    direct_.outputs.push_back(group.at(position, place.output, bytes));
  }
  return true;
}

}  // namespace hvd
