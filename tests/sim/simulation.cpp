#include "simulation.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "world.hpp"

namespace hvd::sim {
namespace {

using namespace detail;  // NOLINT: a test

constexpr Nanos kTimeLimit = 200 * kSecond;
constexpr std::uint64_t kEventLimit = 5'000'000;

int draw_ranks(Random& random) {
  const int dice = random.number(1, 100);
  if (dice <= 6) return 1;
  if (dice <= 75) return random.number(2, 4);
  if (dice <= 93) return random.number(5, 8);
  return random.number(9, 16);
}

/// Half of the runs have a tree with at least one relay. This is drawn separately, so runs of a
/// star do not change.
Shape draw_tree(std::uint64_t seed, int drawn) {
  Random random(~seed);
  if (random.chance(50)) return {drawn, 0};
  int ranks = std::max(drawn, random.number(4, 7));
  if (random.chance(10)) ranks = random.number(8, 30);
  return {ranks, random.chance(50) ? 2 : random.number(2, ranks - 2)};
}

Protocol::Settings settings_for(int rank, int fanout, const Script& script) {
  using std::chrono::milliseconds;
  Protocol::Settings settings;
  settings.rank = rank;
  settings.size = script.ranks;
  settings.fanout = fanout;
  settings.fusion_threshold = script.fusion_threshold;
  settings.freeze_after = script.freeze_after;
  settings.detector = {milliseconds(100), milliseconds(1'800), milliseconds(5'000),
                       milliseconds(200)};
  if (script.never_submits >= 0) {
    settings.stall_warn = milliseconds(1'000);
    settings.stall_abort = milliseconds(6'000);
  }
  return settings;
}

SimRank& of(World& world, int rank) { return *world.ranks[static_cast<std::size_t>(rank)]; }

bool all_over(const World& world) {
  return std::all_of(world.ranks.begin(), world.ranks.end(), [&](const auto& rank) {
    return world.events.cancelled(rank->rank()) || rank->over();
  });
}

/// Checks liveness: every rank and every operation has ended.
void check_ends(const World& world) {
  for (const auto& rank : world.ranks) {
    if (world.events.cancelled(rank->rank()) || rank->over()) continue;
    throw Violation("everything ends",
                    fmt::format("rank {} does not, at {} ms; not resolved:{}", rank->rank(),
                                world.events.now() / kMilli, world.oracle.unresolved()));
  }
}

/// A rank that was stopped or cut off may believe that all others failed. The ranks below a relay
/// that is cut off may blame its parent with it, which they cannot reach either.
bool may_be_wrong(const World& world, const Guilt& guilt, const SimRank& rank) {
  if (rank.rank() == guilt.rank) return true;
  return guilt.kind == FaultKind::long_partition && world.network.behind(guilt.rank, rank.rank()) &&
         rank.culprit() == world.network.routes().parent(guilt.rank);
}

/// Checks that every rank except the culprit learns who the culprit is.
void check_blame(World& world, const std::optional<Guilt>& guilt) {
  bool failed = false;
  for (const auto& rank : world.ranks) {
    if (world.events.cancelled(rank->rank()) || rank->end() != End::failed) continue;
    if (!guilt) {
      throw Violation(
          "nobody is blamed without a reason",
          fmt::format("rank {} blames {}: {}", rank->rank(), rank->culprit(), rank->cause()));
    }
    if (may_be_wrong(world, *guilt, *rank)) continue;
    failed = true;
    if (rank->culprit() != guilt->rank || rank->code() != guilt->code) {
      throw Violation("the culprit is blamed",
                      fmt::format("rank {} blames {} ({}, {}), it was {} ({})", rank->rank(),
                                  rank->culprit(), hvd::to_string(rank->code()), rank->cause(),
                                  guilt->rank, to_string(guilt->kind)));
    }
  }
  if (!failed) return;
  for (const auto& rank : world.ranks) {
    if (world.events.cancelled(rank->rank()) || rank->rank() == guilt->rank) continue;
    // Only when rank 0 or a relay dies while it acknowledges the shutdown may some ranks get the
    // message and others not.
    const bool acknowledges = !world.network.routes().children(guilt->rank).empty();
    if (rank->end() == End::shut_down && !acknowledges) {
      throw Violation("the same end for everybody",
                      fmt::format("rank {} left in peace", rank->rank()));
    }
  }
}

}  // namespace

World::World(std::uint64_t seed, const Random& choices, Script program, int fanout, bool verbose)
    : random(choices),
      events(program.ranks),
      delays(random, events),
      trace(verbose),
      script(std::move(program)),
      oracle(script.ranks),
      network(TreeRoutes(script.ranks, fanout), events, delays, trace,
              {[this](const std::vector<int>& from, int to, std::span<const std::byte> bytes) {
                 of(*this, to).message(from, bytes);
               },
               [this](int to, int peer) { of(*this, to).lost(peer); }}),
      data(script.ranks, events, delays, random, oracle, trace,
           {[this](int rank) { of(*this, rank).executor().transferred(); },
            [this](int rank, Blame blame) { of(*this, rank).executor().broken(blame); }}),
      fences(script.ranks, events, delays, random,
             {[this](int rank, bool met) { of(*this, rank).executor().met(met); },
              [this](int rank, Blame blame) { of(*this, rank).executor().broken(blame); }}) {
  trace.mix(seed);
  int levels = 1;
  for (int rank = 0; rank < script.ranks; ++rank) levels = std::max(levels, network.level(rank));
  delays.hops(levels);
  for (int rank = 0; rank < script.ranks; ++rank) {
    ranks.push_back(std::make_unique<SimRank>(*this, rank, settings_for(rank, fanout, script),
                                              script.programs[static_cast<std::size_t>(rank)]));
  }
}

Outcome simulate(std::uint64_t seed, const Shape& given, bool verbose) {
  Random random(seed);
  const int drawn = draw_ranks(random);
  Shape shape = given;
  if (shape.ranks == 0 && !shape.fanout) shape = draw_tree(seed, drawn);
  if (shape.ranks == 0) shape.ranks = drawn;
  const int size = shape.ranks;
  const bool steady = random.chance(12);
  Faults faults(random, size, steady);
  ScriptOptions options;
  options.ranks = size;
  options.steady = steady;
  options.somebody_lacks = faults.wants_absence();
  Script script = make_script(random, options);
  World world(seed, random, std::move(script), shape.fanout.value_or(0), verbose);

  Outcome outcome;
  outcome.traits = world.script.traits;
  try {
    faults.start(world);
    for (const auto& rank : world.ranks) rank->start();
    while (world.events.step()) {
      faults.after_event(world);
      if (world.events.now() > kTimeLimit || world.events.events() > kEventLimit) break;
      if ((world.events.events() & 63) == 0 && all_over(world)) break;
    }
    check_ends(world);
    check_blame(world, faults.guilt());
    for (const auto& rank : world.ranks)
      outcome.failed = outcome.failed || rank->end() == End::failed;
    world.oracle.conclude(outcome.failed || faults.guilt().has_value());
    if (world.script.must_freeze && world.freezes == 0) {
      throw Violation("a steady schedule freezes", fmt::format("{} ranks", size));
    }
  } catch (const std::exception& error) {
    outcome.violation = error.what();
  }
  outcome.hash = world.trace.hash();
  outcome.events = world.events.events();
  outcome.collectives = world.data.collectives();
  for (const auto& rank : world.ranks) outcome.turns += rank->executor().turns();
  outcome.freezes = world.freezes;
  outcome.thaws = world.thaws;
  outcome.control_messages = world.control_messages;
  outcome.virtual_time = world.events.now();
  outcome.merged_messages = world.network.merged();
  for (int rank = 1; rank < size; ++rank) {
    if (!world.network.routes().is_relay(rank)) continue;
    outcome.tree = true;
    if (!faults.guilt() || faults.guilt()->rank != rank) continue;
    outcome.relay_struck = world.network.level(rank);
  }
  for (int kind = 0; kind < kFaultKinds; ++kind) {
    outcome.faults[static_cast<std::size_t>(kind)] = faults.happened(static_cast<FaultKind>(kind));
  }
  return outcome;
}

}  // namespace hvd::sim
