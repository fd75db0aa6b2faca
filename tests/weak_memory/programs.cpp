#include "programs.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include <hvd/core/error.hpp>

#include "host.hpp"
#include "host/staged.hpp"

namespace hvd::weak {
namespace {

using namespace hvd::detail;

constexpr Deadline kNever = Deadline::max();

/// Makes a program in which each rank of a host runs `body(host, rank)`, except `idle` ones.
template <class Body>
Program on_ranks(std::string name, int ranks, Body body, int idle = 0) {
  const auto host = std::make_shared<Host>(ranks + idle);
  Program program;
  program.name = std::move(name);
  program.set_up = [host] { host->reset(); };
  for (int rank = 0; rank < ranks; ++rank) {
    program.threads.push_back([host, rank, body] { body(*host, rank); });
  }
  return program;
}

void write(std::byte* to, std::uint64_t value) { *reinterpret_cast<std::uint64_t*>(to) = value; }
std::uint64_t read(const std::byte* from) { return *reinterpret_cast<const std::uint64_t*>(from); }

/// Each turn has a message of its own, in the place of the message of the turn before last.
void take_turns(Host& host, int rank, std::uint64_t turns) {
  HostGroup& group = host.group(rank);
  for (std::uint64_t turn = 1; turn <= turns; ++turn) {
    write(group.outgoing(8), 10 * turn + static_cast<std::uint64_t>(rank));
    group.publish(turn, turn);
    for (int other = 0; other < host.size(); ++other) {
      check(group.await(other, turn, kNever) == turn, "a detail of another turn");
      forget();
      check(read(group.incoming(other, 8)) == 10 * turn + static_cast<std::uint64_t>(other),
            "a message of another turn");
    }
    group.end_turn();
    group.wake_others();
    forget();
  }
}

/// The first message of an operation comes with its fence.
void pass_fences(Host& host, int rank, std::uint64_t fences) {
  HostGroup& group = host.group(rank);
  for (std::uint64_t sequence = 1; sequence <= fences; ++sequence) {
    write(group.outgoing(8), 10 * sequence + static_cast<std::uint64_t>(rank));
    group.prepare(sequence, sequence);
    check(host.fence(rank).arrive_and_wait(sequence, 70 + sequence, host.ranks()), "cancelled");
    forget();
    group.publish(1);
    for (int other = 0; other < host.size(); ++other) {
      check(group.await(other, 1, kNever) == sequence, "a detail of another fence");
      check(read(group.incoming(other, 8)) == 10 * sequence + static_cast<std::uint64_t>(other),
            "a message of another fence");
    }
    group.end_turn();
    group.wake_others();
    forget();
  }
}

/// The last rank never arrives at the fence 1, and tells the others.
void cancel_fence(Host& host, int rank) {
  HostGroup& group = host.group(rank);
  if (rank + 1 < host.size()) {
    write(group.outgoing(8), 1);
    group.prepare(1, 1);
    check(!host.fence(rank).arrive_and_wait(1, 71, host.ranks()), "a cancelled fence is passed");
    forget();
  } else {
    std::vector<std::uint64_t> reached(host.ranks().size(), 1);
    reached.back() = 0;
    for (const int of : host.ranks()) host.fence(of).settle(reached);
  }
  write(group.outgoing(8), 20 + static_cast<std::uint64_t>(rank));
  group.prepare(2, 2);
  check(host.fence(rank).arrive_and_wait(2, 72, host.ranks()), "a fence is cancelled");
  forget();
  for (int other = 0; other < host.size(); ++other) {
    check(group.await(other, 1, kNever) == 2, "a detail of another fence");
    check(read(group.incoming(other, 8)) == 20 + static_cast<std::uint64_t>(other),
          "a message of another fence");
  }
  group.end_turn();
  group.wake_others();
}

/// One rank waits at a fence to which the other does not come, and another thread aborts it.
Program abort_fence() {
  Program program = on_ranks("abort", 2, [](Host& host, int rank) {
    if (rank == 1) return host.fence(0).abort();
    try {
      static_cast<void>(host.fence(0).arrive_and_wait(1, 71, host.ranks()));
    } catch (const Error& error) {
      check(error.code() == Errc::aborted, "another error");
      return;
    }
    fail("an aborted fence is passed");
  });
  return program;
}

void make_set(Host& host, int rank) {
  HostGroup& group = *host.shared(rank).group(std::array{0, 1});
  group.attach(kNever);
  forget();
  group.barrier(1, kNever);
  group.wake_others();
}

void refuse_set(Host& host, int rank) {
  if (rank == 1) host.shared(1).blocks = HostSets::kMost;
  try {
    host.shared(rank).group(std::array{0, 1})->attach(kNever);
  } catch (const Error& error) {
    check(error.code() == Errc::resource && error.fault().rank == 1, "another error");
    // The rank that has no memory wakes the others in its next wait.
    if (rank == 1) host.shared(1).wait.ring(std::array{host.group(1).member(0).neighbour});
    return;
  }
  fail("a set without memory is made");
}

/// Runs allreduces of this many elements one after another.
void reduce(Host& host, int rank, std::int64_t count, int calls, bool ahead) {
  HostGroup& group = host.group(rank);
  static std::array<std::vector<float>, 4> memory;  // of which few elements are used
  std::vector<float>& input = memory[static_cast<std::size_t>(2 * rank)];
  std::vector<float>& output = memory[static_cast<std::size_t>(2 * rank) + 1];
  input.resize(static_cast<std::size_t>(count));
  output.resize(static_cast<std::size_t>(count));
  const HostArithmetic arithmetic{Arithmetic{}};
  FusionBuffer scratch;
  for (int call = 1; call <= calls; ++call) {
    input.front() = input.back() = static_cast<float>(call * (rank + 1));
    const TensorSlice tensor{reinterpret_cast<const std::byte*>(input.data()),
                             reinterpret_cast<std::byte*>(output.data()), count};
    const auto make = [&] {
      return StagedAllreduce(group, {&tensor, 1}, arithmetic, scratch, nullptr, kNever);
    };
    const bool copied = ahead && make().copy_ahead() != 0;
    StagedAllreduce allreduce = make();
    allreduce.begin(copied);
    allreduce.run();
    const auto sum = static_cast<float>(call * host.size() * (host.size() + 1) / 2);
    check(output.front() == sum && output.back() == sum, "a wrong sum");
    group.wake_others();
    forget();
  }
}

/// Moves chunks of the first `givers` ranks as HostExchange does: each slot is written again when
/// all others have read it. A rank that takes nothing does not wait for the others.
void exchange(Host& host, int rank, std::uint64_t chunks, int givers) {
  HostGroup& group = host.group(rank);
  const auto give = [&](std::uint64_t number) {
    if (number >= chunks || rank >= givers) return;
    group.wait_free(number, kNever);
    forget();
    write(group.slot(rank, number), 10 * number + static_cast<std::uint64_t>(rank));
    group.publish_copied(number + 1);
  };
  give(0);
  for (std::uint64_t number = 0; number < chunks; ++number) {
    give(number + 1);
    for (int other = 0; other < givers; ++other) {
      if (other == rank) continue;
      group.wait_copied(other, number + 1, kNever);
      forget();
      check(read(group.slot(other, number)) == 10 * number + static_cast<std::uint64_t>(other),
            "a chunk of another number");
    }
    group.publish_reduced(number + 1);
  }
  group.wake_others();
}

}  // namespace

std::vector<Program> protocol_programs() {
  constexpr std::int64_t kChunk = HostSlots::kChunk / sizeof(float);
  std::vector<Program> programs;
  programs.push_back(abort_fence());
  programs.push_back(on_ranks("set", 2, make_set, 1));
  programs.push_back(on_ranks("refused set", 2, refuse_set, 1));
  programs.push_back(on_ranks("turns", 2, [](Host& h, int r) { take_turns(h, r, 2); }));
  programs.push_back(on_ranks("fences", 2, [](Host& h, int r) { pass_fences(h, r, 2); }));
  programs.push_back(on_ranks("cancelled fence, 2 ranks", 2, cancel_fence));
  programs.push_back(on_ranks("exchange", 2, [](Host& h, int r) { exchange(h, r, 5, 2); }));
  programs.push_back(
      on_ranks("staged", 2, [](Host& h, int r) { reduce(h, r, 4 * kChunk, 1, false); }));
  programs.push_back(on_ranks("whole", 2, [](Host& h, int r) { reduce(h, r, 2, 4, true); }));
  programs.push_back(on_ranks("ahead, after a broadcast", 2, [](Host& h, int r) {
    exchange(h, r, HostSlots::kDepth, 1);
    h.group(r).take_chunks(HostSlots::kDepth);
    reduce(h, r, 2, 1, true);
  }));
  programs.push_back(on_ranks("turns, 3 ranks", 3, [](Host& h, int r) { take_turns(h, r, 1); }));
  programs.push_back(on_ranks("cancelled fence", 3, cancel_fence));
  return programs;
}

}  // namespace hvd::weak
