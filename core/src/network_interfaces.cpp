#include <algorithm>
#include <utility>

#include <hvd/core/network_interfaces.hpp>

#include "net/interfaces.hpp"

namespace hvd {

ReachableAddress reachable_address(std::string_view wanted) {
  const auto addresses = net::list_interfaces();
  std::string chosen = net::choose_address(addresses, wanted, /*one_host=*/false);
  const auto owner = std::find_if(addresses.begin(), addresses.end(),
                                  [&](const auto& one) { return one.address == chosen; });
  return {.interface = owner == addresses.end() ? "" : owner->interface,
          .address = std::move(chosen)};
}

}  // namespace hvd
