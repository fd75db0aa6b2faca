// What to change, from what was found. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/topology.hpp>

#include "rates.hpp"

namespace hvd::selftest {

struct HostFacts {
  std::string name;
  int cores = 1;
  std::uint64_t shared_memory = 0;      ///< bytes of /dev/shm
  std::string interface;                ///< that other hosts reach it by; empty: none
  std::vector<std::string> interfaces;  ///< all that are up, but for the loopback
};

struct Findings {
  Topology topology;
  std::vector<HostFacts> hosts;  ///< as in `topology.host_of`
  std::vector<PairRate> rates;
  bool has_secret = true;  ///< ranks prove to each other that they belong to the job
};

/// A sentence each, the most important first; empty when there is nothing to say.
[[nodiscard]] std::vector<std::string> advise(const Findings& findings);

/// Bytes, to be sent to rank 0, and back. Throws hvd::Error (protocol).
[[nodiscard]] std::string to_text(const HostFacts& facts);
[[nodiscard]] HostFacts facts_from(const std::string& text);

}  // namespace hvd::selftest
