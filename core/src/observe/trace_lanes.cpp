#include "observe/trace_lanes.hpp"

namespace hvd::observe {

TraceLanes::Lane TraceLanes::lane_of(std::string_view tensor) {
  if (const auto found = by_name_.find(tensor); found != by_name_.end()) {
    owners_.splice(owners_.begin(), owners_, found->second);
    return {.number = found->second->number};
  }
  Lane lane;
  if (owners_.size() < most_) {
    lane.fresh = true;
    owners_.push_front({std::string(tensor), static_cast<int>(owners_.size()) + 1, false});
  } else {
    owners_.splice(owners_.begin(), owners_, std::prev(owners_.end()));
    Owner& owner = owners_.front();
    by_name_.erase(owner.name);
    owner.name = tensor;
    lane.shared = !owner.shared;
    owner.shared = true;
  }
  lane.number = owners_.front().number;
  by_name_.emplace(owners_.front().name, owners_.begin());
  return lane;
}

}  // namespace hvd::observe
