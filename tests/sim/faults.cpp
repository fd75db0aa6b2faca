#include "faults.hpp"

#include "world.hpp"

namespace hvd::sim {
namespace {

constexpr std::array<std::string_view, kFaultKinds> kNames{
    "slow phase",     "reordered threads", "pause", "partition",       "crash",  "long pause",
    "long partition", "limit pause",       "abort", "backend failure", "absence"};

// The times for which a rank is stopped. The peer timeout is 1.8 s.
constexpr Nanos kBriefly = 1'200 * kMilli;
constexpr Nanos kTooLong = 2'600 * kMilli;
constexpr Nanos kAboutTheLimit = 1'300 * kMilli;
// The times for which a stream is cut. The host timeout is 5 s. After a brief cut, bytes pass again
// before twice its length is over.
constexpr Nanos kCutBriefly = 2'300 * kMilli;
constexpr Nanos kCutTooLong = 5'800 * kMilli;

// The time until all other ranks know of a failure: the timeout and a tick (or nothing), and up to
// 120 ms for each message.
constexpr Nanos kFrozenKnown = 2'400 * kMilli;
constexpr Nanos kCutKnown = 5'600 * kMilli;
constexpr Nanos kCrashKnown = 400 * kMilli;

}  // namespace

std::string_view to_string(FaultKind kind) noexcept {
  return kNames[static_cast<std::size_t>(kind)];
}

Faults::Faults(Random& random, int ranks, bool quiet) : random_(random), ranks_(ranks) {
  reorder_ = random_.chance(30);
  if (quiet) return;
  slow_ = random_.chance(12);
  if (ranks_ > 1 && random_.chance(30)) {
    constexpr std::array kinds{FaultKind::crash,           FaultKind::crash,
                               FaultKind::crash,           FaultKind::long_pause,
                               FaultKind::long_partition,  FaultKind::abort,
                               FaultKind::backend_failure, FaultKind::absence};
    fatal_ = kinds[random_.next() % kinds.size()];
    strike_at_ = static_cast<std::uint64_t>(random_.spread(1, 1200));
    return;
  }
  if (ranks_ == 1) return;
  // Draws only one of the two, because together they could look like a lost rank.
  pause_ = random_.chance(10);
  partition_ = !pause_ && random_.chance(10);
  strike_at_ = static_cast<std::uint64_t>(random_.spread(1, 1200));
}

void Faults::start(World& world) {
  if (reorder_) {
    mark(FaultKind::reorder);
    world.delays.reorder(random_.spread(200 * kMicro, 8 * kMilli));
  }
  if (slow_) {
    mark(FaultKind::slow);
    const Nanos begin = random_.spread(kMilli, 200 * kMilli);
    world.delays.slow({begin, begin + random_.spread(10 * kMilli, kSecond),
                       random_.chance(50) ? -1 : random_.number(0, ranks_ - 1),
                       random_.number(10, 200)});
  }
  if (fatal_ == FaultKind::absence && world.script.never_submits >= 0) {
    mark(FaultKind::absence);
    guilt_ = Guilt{FaultKind::absence, world.script.never_submits, Errc::timeout};
  }
}

/// Checks that no survivor continues without the culprit or waits for it.
void Faults::check_noticed(World& world) {
  if (noticed_by_ == 0 || world.events.now() < noticed_by_) return;
  noticed_by_ = 0;
  for (const auto& rank : world.ranks) {
    const bool behind = world.network.behind(guilt_->rank, rank->rank());
    if (rank->rank() == guilt_->rank || (behind && guilt_->kind == FaultKind::long_partition)) {
      continue;
    }
    if (rank->end() == End::none) {
      throw Violation("noticed in time", fmt::format("not by rank {}: {} of rank {}", rank->rank(),
                                                     to_string(guilt_->kind), guilt_->rank));
    }
  }
}

void Faults::after_event(World& world) {
  check_noticed(world);
  if (struck_ || strike_at_ == 0 || world.events.events() < strike_at_) return;
  struck_ = true;
  strike(world);
}

void Faults::pause(World& world, int rank, Nanos duration) {
  world.trace.say(world.events.now(), rank, "is stopped for {} ms", duration / kMilli);
  world.events.stop(rank, world.events.now() + duration);
}

void Faults::cut(World& world, int rank, Nanos duration) {
  const Nanos until = world.events.now() + duration;
  const int ways = random_.number(0, 2);
  world.trace.say(world.events.now(), rank, "is cut off for {} ms", duration / kMilli);
  const int parent = world.network.routes().parent(rank);
  const auto resumes = [&] { return until + random_.between(0, duration); };
  if (ways != 1) world.network.withhold(rank, parent, until, resumes());
  if (ways != 0) world.network.withhold(parent, rank, until, resumes());
}

void Faults::strike(World& world) {
  const int rank = random_.number(0, ranks_ - 1);
  const Nanos brief = random_.spread(kMilli, kBriefly);
  const Nanos brief_cut = random_.spread(kMilli, kCutBriefly);
  const Nanos long_time = random_.between(kTooLong, 6 * kSecond);
  if (pause_) {
    mark(FaultKind::pause);
    if (!random_.chance(30)) return pause(world, rank, brief);
    // The whole machine stands still, and every rank notices that it was late itself.
    const Nanos standstill = random_.between(kCutTooLong, 9 * kSecond);
    for (int each = 0; each < ranks_; ++each) pause(world, each, standstill);
    return;
  }
  if (partition_) {
    mark(FaultKind::partition);
    return cut(world, random_.number(1, ranks_ - 1), brief_cut);
  }
  if (!fatal_ || fatal_ == FaultKind::absence ||
      world.ranks[static_cast<std::size_t>(rank)]->end() != End::none)
    return;
  switch (*fatal_) {
    case FaultKind::crash:
      world.trace.say(world.events.now(), rank, "crashes");
      world.events.kill(rank);
      world.network.crash(rank, random_);
      world.fences.gone(rank);
      world.data.gone(rank);
      guilt_ = Guilt{FaultKind::crash, rank, Errc::peer_lost};
      noticed_by_ = world.events.now() + kCrashKnown;
      break;
    case FaultKind::long_pause:
      if (long_time % 3 == 0) {
        pause(world, rank, random_.between(kAboutTheLimit, kTooLong));
        guilt_ = Guilt{FaultKind::limit_pause, rank, Errc::peer_lost, false};
        return mark(FaultKind::limit_pause);
      }
      pause(world, rank, long_time);
      guilt_ = Guilt{FaultKind::long_pause, rank, Errc::peer_lost};
      noticed_by_ = world.events.now() + kFrozenKnown;
      break;
    case FaultKind::long_partition: {
      const int cut_off = random_.number(1, ranks_ - 1);
      cut(world, cut_off, random_.between(kCutTooLong, 9 * kSecond));
      guilt_ = Guilt{FaultKind::long_partition, cut_off, Errc::peer_lost};
      noticed_by_ = world.events.now() + kCutKnown;
      break;
    }
    case FaultKind::abort:
      world.events.at(world.events.now(), rank,
                      [&world, rank] { world.ranks[static_cast<std::size_t>(rank)]->abort(); });
      guilt_ = Guilt{FaultKind::abort, rank, Errc::aborted};
      break;
    case FaultKind::backend_failure:
      if (!world.ranks[static_cast<std::size_t>(rank)]->executor().waits()) {
        struck_ = false;  // try again later
        return;
      }
      world.fences.dropped(rank);
      world.data.dropped(rank);
      world.ranks[static_cast<std::size_t>(rank)]->executor().broken({Errc::resource, rank});
      guilt_ = Guilt{FaultKind::backend_failure, rank, Errc::resource};
      break;
    default:
      return;
  }
  mark(*fatal_);
}

}  // namespace hvd::sim
