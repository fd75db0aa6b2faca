// What happens in one run of an elastic job: its options, its program and its faults.
#pragma once

#include <cstdint>
#include <vector>

#include <hvd/core/internal/membership.hpp>

#include "event_queue.hpp"
#include "random.hpp"

namespace hvd::sim::elastic {

using detail::Membership;

enum class FaultKind : std::uint8_t {
  crash,         ///< a process is killed
  throws,        ///< a program ends with an exception
  pause,         ///< a process is stopped for a while
  freeze,        ///< a process is stopped for ever
  cut,           ///< two hosts cannot reach each other for a while
  cut_for_ever,  ///< two hosts cannot reach each other from now on
  agent_lost,    ///< the agent of a host dies, and its workers with it
  host_lost,     ///< a host is silent, also for hvdrun, and away for a while
  slow,          ///< everything on a host is slow for a while
  leave,         ///< a process is asked to leave
  host_gone,     ///< discovery lists a host no longer
  new_slots,     ///< discovery lists a host again, a new one, or with other slots
};
inline constexpr int kFaultKinds = 12;
[[nodiscard]] const char* to_string(FaultKind kind);

struct FaultPlan {
  FaultKind kind{};
  std::uint64_t boundary = 0;  ///< it happens before this message or other boundary of the run
  int victim = 0;              ///< drawn; the run chooses among those that there are
  Nanos length = 0;
};

struct Plan {
  std::vector<int> slots;  ///< by host
  Membership::Options options;
  int epochs = 1;
  int samples = 8;  ///< at most `kMostSamples`
  int batch = 1;    ///< of a rank
  bool certain =
      true;  ///< parameters change only in steps; otherwise a loss takes back to a commit
  int commit_every = 3;
  bool mirrored = false;          ///< its state is divided and mirrored
  std::vector<FaultPlan> faults;  ///< by boundary
};
inline constexpr int kMostSamples = 48;

/// `ranks` is the number of slots at the start; 0: drawn, 1 to 8.
[[nodiscard]] Plan draw_plan(Random& random, int ranks);

}  // namespace hvd::sim::elastic
