#include "host/placement.hpp"

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/log.hpp>

namespace hvd::detail {
namespace {

constexpr std::uint64_t kNowhere = ~std::uint64_t{0};

}  // namespace

void ArenaPlacement::locate(std::span<const TensorSlice> tensors, std::size_t element,
                            const HostArena& arena, bool as_given) {
  static_assert(sizeof(Offsets) * kMost == HostMessage::kLong);
  element_ = element;
  here_ = 0;
  offsets_.clear();
  bytes_.clear();
  for (const TensorSlice& tensor : tensors) {
    const std::size_t bytes = static_cast<std::size_t>(tensor.count) * element;
    const bool here = as_given && bytes > 0 && arena.contains(tensor.input, bytes) &&
                      arena.contains(tensor.output, bytes);
    offsets_.push_back(here ? Offsets{arena.offset_of(tensor.input), arena.offset_of(tensor.output)}
                            : Offsets{kNowhere, kNowhere});
    bytes_.push_back(bytes);
    if (here) ++here_;
  }
}

std::vector<BlockList::Block> ArenaPlacement::exposed_parts() const {
  std::vector<BlockList::Block> found;
  for (std::size_t tensor = 0; tensor < offsets_.size(); ++tensor) {
    const auto [input, output] = offsets_[tensor];
    if (output == kNowhere) continue;
    found.push_back({input, bytes_[tensor]});
    if (output != input) found.push_back({output, bytes_[tensor]});
  }
  return found;
}

void ArenaPlacement::write(HostGroup& group) const {
  const std::size_t bytes = offsets_.size() * sizeof(Offsets);
  std::byte* const outgoing = group.outgoing(bytes);
  if (here_ > 0) {
    std::memcpy(outgoing, offsets_.data(), bytes);
  } else {  // then `detail` says this of all tensors
    std::memcpy(outgoing, &kNowhere, sizeof kNowhere);
  }
}

void ArenaPlacement::await_others(HostGroup& group, std::span<const TensorSlice> tensors,
                                  std::uint64_t name, Deadline deadline) {
  bool some = true;
  for (int position = 0; position < group.size(); ++position) {
    const std::uint64_t detail = group.await(position, name, deadline);
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

void ArenaPlacement::sort(const HostGroup& group, std::span<const TensorSlice> tensors) {
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

bool ArenaPlacement::is_direct(const HostGroup& group, std::size_t tensor, std::size_t bytes) {
  for (int position = 0; position < group.size(); ++position) {
    Offsets offsets;
    std::memcpy(
        &offsets,
        group.incoming(position, offsets_.size() * sizeof offsets) + tensor * sizeof offsets,
        sizeof offsets);
    if (offsets.input == kNowhere || offsets.output == kNowhere) return false;
    direct_.inputs.push_back(group.at(position, offsets.input, bytes));
    direct_.outputs.push_back(group.at(position, offsets.output, bytes));
  }
  return true;
}

void Exposure::end_by_copying() noexcept {
  if (!std::exchange(exposed_, false)) return;
  try {
    const std::string refused = arena_.make_private(placement_.exposed_parts());
    if (refused.empty()) return;
    log(LogLevel::warn, rank_,
        fmt::format("tensors of the operation that failed may still be written to by ranks that "
                    "are late: {}",
                    refused));
  } catch (const std::exception&) {
    // There is no memory even for the list of pages. The operation's own error is reported.
  }
}

}  // namespace hvd::detail
