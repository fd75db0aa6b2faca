// Which lane of a rank's trace a tensor is drawn in: one of its own while there are enough.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hvd::observe {

/// Lanes are numbered from 1. When all are taken, a new name takes over the lane that was not used
/// for longest, so that lanes stay bounded where names change every step.
class TraceLanes {
 public:
  struct Lane {
    int number = 0;
    bool fresh = false;   ///< given out for the first time
    bool shared = false;  ///< just taken over, for the first time
  };

  explicit TraceLanes(int most) : most_(most < 1 ? 1 : static_cast<std::size_t>(most)) {}

  [[nodiscard]] Lane lane_of(std::string_view tensor);

 private:
  struct Owner {
    std::string name;
    int number = 0;
    bool shared = false;
  };

  std::size_t most_;
  std::list<Owner> owners_;  // the latest first
  std::unordered_map<std::string_view, std::list<Owner>::iterator> by_name_;
};

}  // namespace hvd::observe
