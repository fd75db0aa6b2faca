// Derives advice from the results of a self-test. The functions have no side effects.
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
  std::string interface;                ///< other hosts reach it by this interface; empty: none
  std::vector<std::string> interfaces;  ///< all that are up, except the loopback
};

struct Findings {
  Topology topology;
  std::vector<HostFacts> hosts;  ///< as in `topology.host_of`
  std::vector<PairRate> rates;
  bool has_secret = true;  ///< ranks prove to each other that they belong to the job
};

/// Returns one sentence for each piece of advice, with the most important first.
[[nodiscard]] std::vector<std::string> advise(const Findings& findings);

/// Encodes the facts as bytes, to be sent to rank 0.
[[nodiscard]] std::string to_text(const HostFacts& facts);
/// Decodes them. Throws hvd::Error (protocol).
[[nodiscard]] HostFacts facts_from(const std::string& text);

}  // namespace hvd::selftest
