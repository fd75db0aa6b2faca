#include "elastic/simulation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include <hvd/core/internal/splitmix64.hpp>

#include "elastic/job.hpp"

namespace hvd::sim::elastic {

Outcome simulate(std::uint64_t seed, int ranks, bool verbose) {
  Job job(seed, ranks, verbose);
  Outcome outcome;
  try {
    job.run();
    outcome.code = job.driver.end()->code;
  } catch (const std::exception& error) {
    outcome.violation = error.what();
  }
  outcome.hash = job.trace.hash();
  outcome.events = job.events.events();
  outcome.steps = static_cast<std::uint64_t>(job.oracle.steps());
  outcome.generations = job.driver.generation();
  outcome.rank_0_struck = job.rank_0_struck;
  outcome.faults = job.faults;
  return outcome;
}

void Totals::add(const Outcome& outcome) {
  ++seeds;
  events += outcome.events;
  steps += outcome.steps;
  generations += outcome.generations;
  if (std::count(outcome.faults.begin(), outcome.faults.end(), true) > 1) ++several;
  if (outcome.rank_0_struck) ++rank_0_struck;
  if (outcome.code == 0) ++successes;
  if (outcome.code == Membership::kExitRetry) ++retries;
  hash = (hash ^ outcome.hash) * kGoldenRatio64;
  hash ^= hash >> 32;
  for (std::size_t i = 0; i < faults.size(); ++i) faults[i] += outcome.faults[i] ? 1 : 0;
}

std::string Totals::text(std::chrono::duration<double> wall) const {
  std::string text = fmt::format(
      "elastic seeds {}\nevents {}\nsteps {}\ngenerations {}\njobs that ended with 0 {}, with 75 "
      "{}\n"
      "jobs with several kinds of fault {}, with rank 0 struck {}\n"
      "wall time {:.2f} s, {:.0f} seeds/s\n",
      seeds, events, steps, generations, successes, retries, several, rank_0_struck, wall.count(),
      static_cast<double>(seeds) / wall.count());
  for (int i = 0; i < kFaultKinds; ++i) {
    text += fmt::format("fault {:<18} {}\n", to_string(static_cast<FaultKind>(i)),
                        faults[static_cast<std::size_t>(i)]);
  }
  return text + fmt::format("trace {:016x}\n", hash);
}

std::string Totals::missing() const {
  std::string text;
  for (int i = 0; i < kFaultKinds; ++i) {
    if (faults[static_cast<std::size_t>(i)] > 0) continue;
    text += fmt::format(" {};", to_string(static_cast<FaultKind>(i)));
  }
  if (several == 0) text += " several faults;";
  if (rank_0_struck == 0) text += " rank 0 struck;";
  if (retries == 0) text += " 75;";
  return text;
}

}  // namespace hvd::sim::elastic
