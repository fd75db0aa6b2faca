#include "totals.hpp"

#include <fmt/format.h>

#include <hvd/core/internal/splitmix64.hpp>

namespace hvd::sim {

void Totals::add(const Outcome& outcome) {
  ++seeds;
  events += outcome.events;
  collectives += outcome.collectives;
  turns += outcome.turns;
  freezes += outcome.freezes;
  thaws += outcome.thaws;
  control_messages += outcome.control_messages;
  virtual_time += outcome.virtual_time;
  if (outcome.freezes > 0) ++frozen_runs;
  if (outcome.failed) ++failed_runs;
  if (outcome.tree) ++trees;
  if (outcome.relay_struck > 0) ++relays_struck;
  if (outcome.relay_struck > 1) ++low_relays_struck;
  merged_messages += outcome.merged_messages;
  hash = (hash ^ outcome.hash) * kGoldenRatio64;
  hash ^= hash >> 32;
  for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += outcome.faults[i] ? 1 : 0;
  for (std::size_t i = 0; i < traits.size(); ++i) traits[i] += outcome.traits[i] ? 1 : 0;
}

std::string Totals::text(std::chrono::duration<double> wall) const {
  std::string text = fmt::format(
      "seeds {}\nevents {}\ncollectives {}\nturns of frozen schedules {}\nfreezes {} in {} runs\n"
      "thaws {}\ncontrol messages {}\njobs that failed {}\n"
      "jobs with a tree {}, a relay struck in {}, one below another in {}, messages merged {}\n"
      "virtual time {:.0f} s\n"
      "wall time {:.2f} s, {:.0f} seeds/s\n",
      seeds, events, collectives, turns, freezes, frozen_runs, thaws, control_messages, failed_runs,
      trees, relays_struck, low_relays_struck, merged_messages,
      static_cast<double>(virtual_time) / kSecond, wall.count(),
      static_cast<double>(seeds) / wall.count());
  for (int i = 0; i < kFaultKinds; ++i) {
    text += fmt::format("fault {:<18} {}\n", to_string(static_cast<FaultKind>(i)),
                        faults[static_cast<std::size_t>(i)]);
  }
  for (int i = 0; i < kTraitCount; ++i) {
    text += fmt::format("program {:<18} {}\n", to_string(static_cast<Trait>(i)),
                        traits[static_cast<std::size_t>(i)]);
  }
  text += fmt::format("trace {:016x}\n", hash);
  return text;
}

std::string Totals::missing() const {
  std::string text;
  for (int i = 0; i < kFaultKinds; ++i) {
    if (faults[static_cast<std::size_t>(i)] == 0)
      text += fmt::format(" {};", to_string(static_cast<FaultKind>(i)));
  }
  for (int i = 0; i < kTraitCount; ++i) {
    if (traits[static_cast<std::size_t>(i)] == 0)
      text += fmt::format(" {};", to_string(static_cast<Trait>(i)));
  }
  if (merged_messages == 0) text += " merged messages;";
  if (relays_struck == low_relays_struck) text += " a relay struck;";
  if (low_relays_struck == 0) text += " a relay below another struck;";
  if (4 * frozen_runs < seeds)
    text += fmt::format(" only {} of {} runs froze;", frozen_runs, seeds);
  return text;
}

}  // namespace hvd::sim
