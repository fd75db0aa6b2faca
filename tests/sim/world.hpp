// All parts of one run.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "data_plane.hpp"
#include "delays.hpp"
#include "event_queue.hpp"
#include "fence_model.hpp"
#include "network.hpp"
#include "oracle.hpp"
#include "program.hpp"
#include "random.hpp"
#include "rank.hpp"
#include "trace.hpp"

namespace hvd::sim {

struct World {
  World(std::uint64_t seed, const Random& choices, Script program, int fanout, bool verbose);

  Random random;
  EventQueue events;
  Delays delays;
  Trace trace;
  Script script;
  Oracle oracle;
  Network network;
  DataPlane data;
  FenceModel fences;
  std::vector<std::unique_ptr<SimRank>> ranks;

  std::uint64_t freezes = 0;  // at rank 0
  std::uint64_t thaws = 0;
  std::uint64_t control_messages = 0;
};

}  // namespace hvd::sim
