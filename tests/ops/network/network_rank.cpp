// A rank of the tests over networks.
//   network_rank [--serve ADDRESS] [--strike RANK SIGNAL POINT VISIT WAYS RING]
//                COUNT REPEATS [wait] [own | RANKS...]
// Sums COUNT floats REPEATS times, in place, and checks the results. With `wait` it
// goes on until something fails. Each of RANKS is a process set, like 0,2,3: the sums are made in
// those that this rank is in, and not by all. Before the sums, all ranks check a user-defined
// reduction and messages; with `own` they repeat these instead of sums. The program prints "ready"
// before the sums, and then "ok SENT RECEIVED SENT RECEIVED", the bytes that its host's two links
// carried meanwhile, or "error CODE: WHAT". The exit status is 0 for both and 1 for a wrong result.
// A RANK to strike raises SIGNAL in its second round when it comes to POINT for the VISIT-th time.
// WAYS and RING are the algorithms that all ranks then use over hosts and in the ring between them.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/ready_fence.hpp>
#include <hvd/core/internal/session.hpp>
#include <hvd/core/internal/store_server.hpp>
#include <hvd/hvd.hpp>
#include <hvd/ops/internal/backends.hpp>
#include <hvd/ops/internal/ready_fence.hpp>
#include <hvd/ops/internal/transport.hpp>

#include "death/doomed.hpp"
#include "hierarchy/hierarchical_backend.hpp"
#include "ring/ring_backend.hpp"
#include "shm/descriptors.hpp"

namespace {

/// Returns the bytes that each link of this host has sent and received; 0 where there is no link.
std::array<long, 4> carried() {
  std::array<long, 4> bytes{};
  std::size_t i = 0;
  for (const char* const device : {"hvd0", "hvd1"}) {
    for (const char* const direction : {"tx", "rx"}) {
      std::ifstream file(fmt::format("/sys/class/net/{}/statistics/{}_bytes", device, direction));
      file >> bytes[i++];
    }
  }
  return bytes;
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void fill(std::vector<float>& data, int rank) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(rank + 1) + static_cast<float>(i % 251);
  }
}

bool right(const std::vector<float>& data, const std::vector<int>& ranks) {
  float sum = 0;
  for (const int rank : ranks) sum += static_cast<float>(rank + 1);
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (data[i] != sum + static_cast<float>(ranks.size() * (i % 251))) return false;
  }
  return true;
}

std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  std::istringstream list(text);
  for (std::string rank; std::getline(list, rank, ',');) ranks.push_back(std::stoi(rank));
  return ranks;
}

/// Returns the process sets in which this rank sums.
std::vector<hvd::ProcessSet> sets_of(hvd::Context& context, std::span<const std::string> texts) {
  if (texts.empty()) return {hvd::ProcessSet()};
  std::vector<hvd::ProcessSet> own;
  for (const std::string& text : texts) {
    const hvd::ProcessSet set = context.add_process_set(ranks_in(text));
    if (std::count(set.ranks.begin(), set.ranks.end(), context.rank()) > 0) own.push_back(set);
  }
  return own;
}

/// Checks a user-defined reduction, which must be in rank order, and a message to the next rank.
bool own_operations_are_right(hvd::Context& context) {
  struct Range {
    std::int32_t first;
    std::int32_t last;
    std::int32_t broken;
  };
  std::vector<Range> ranges(10'007, {context.rank(), context.rank(), 0});
  hvd::allreduce_with(
      std::span(ranges),
      [](Range& into, const Range& from) {
        into = {into.first, from.last, into.broken + from.broken + (from.first != into.last + 1)};
      },
      {.context = &context});
  const int size = context.size();
  const int next = (context.rank() + 1) % size;
  const int previous = (context.rank() + size - 1) % size;
  const std::vector<float> out(30'011, static_cast<float>(context.rank()));
  std::vector<float> in(out.size());
  const hvd::Work sent =
      hvd::send_async(out.data(), std::ssize(out), hvd::DType::f32, next, {.context = &context});
  hvd::recv(std::span(in), previous, {.context = &context});
  sent.wait();
  return std::all_of(ranges.begin(), ranges.end(),
                     [&](const Range& one) {
                       return one.first == 0 && one.last == size - 1 && one.broken == 0;
                     }) &&
         std::all_of(in.begin(), in.end(),
                     [&](float value) { return value == static_cast<float>(previous); });
}

struct Strike {
  int rank = -1;
  int signal = 0;
  std::string point;
  int visit = 0;
  std::string ways;
  std::string ring;
};

/// Makes a context with the engine for several hosts, whose parts raise the signal.
std::unique_ptr<hvd::Context> make_doomed_context(const hvd::Config& config, const Strike& strike,
                                                  hvd::test::Doom& doom) {
  auto session = std::make_unique<hvd::Session>(config, nullptr);
  auto ring = std::make_unique<hvd::detail::RingBackend>(
      hvd::test::make_doomed(hvd::make_tcp_transport(*session), doom), session->topology().host_of);
  ring->use(hvd::detail::AlgorithmTable::parse(strike.ring));
  hvd::HostEngine host;
  if (hvd::detail::ranks_here(session->topology()).size() > 1) {
    host = hvd::make_host_engine(*session);
    host.backend = hvd::test::make_doomed(std::move(host.backend), doom);
  }
  auto hosts = hvd::detail::compose_hierarchy(std::move(ring), std::move(host.backend),
                                              session->topology(), session->start_deadline());
  hosts->use(hvd::detail::AlgorithmTable::parse(strike.ways));
  std::vector<std::unique_ptr<hvd::Backend>> backends;
  backends.push_back(std::move(hosts));
  auto fence = hvd::make_tcp_fence(*session);
  return std::make_unique<hvd::Context>(std::move(session), std::move(backends), std::move(fence),
                                        std::move(host.arena));
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  auto rest = std::span(arguments);
  const auto take = [&rest]() -> const std::string& {
    const std::string& front = rest.front();
    rest = rest.subspan(1);
    return front;
  };
  std::string store;
  if (rest.front() == "--serve") {
    take();
    store = take();
  }
  Strike strike;
  if (rest.front() == "--strike") {
    take();
    strike.rank = std::stoi(take());
    strike.signal = std::stoi(take());
    strike.point = take();
    strike.visit = std::stoi(take());
    strike.ways = take();
    strike.ring = take();
  }
  const auto count = static_cast<std::size_t>(std::stoul(take()));
  const long repeats = std::stol(take());
  const bool until_failure = !rest.empty() && rest.front() == "wait";
  if (until_failure) take();
  const bool own = !rest.empty() && rest.front() == "own";
  if (own) take();
  try {
    const hvd::Config config = hvd::Config::from_environment();
    hvd::EventLoop loop;
    std::optional<hvd::StoreServer> server;
    if (!store.empty()) {
      server.emplace(loop, store,
                     hvd::Identity{.job_id = config.job_id,
                                   .epoch = 0,
                                   .rank = -1,
                                   .secret = config.secret_file.empty()
                                                 ? hvd::Secret()
                                                 : hvd::Secret::from_file(config.secret_file)});
    }
    hvd::test::Doom doom;
    const auto context =
        strike.rank < 0 ? hvd::make_context(config) : make_doomed_context(config, strike, doom);
    std::vector<float> data(count);
    const auto sets = sets_of(*context, rest);
    if (!own_operations_are_right(*context)) {
      say("wrong own operations");
      return 1;
    }
    hvd::barrier({.context = context.get()});
    say("ready");
    const std::array<long, 4> before = carried();
    // A rank that is in no set waits in the barrier.
    for (long i = 0; i < repeats || (until_failure && !sets.empty()); ++i) {
      if (i == 1 && context->rank() == strike.rank) {
        doom.arm(strike.point, strike.visit, strike.signal);
      }
      if (own) {
        if (own_operations_are_right(*context)) continue;
        say("wrong own operations");
        return 1;
      }
      for (const hvd::ProcessSet& set : sets) {
        fill(data, context->rank());
        hvd::allreduce(std::span<float>(data), {.name = "sum",
                                                .op = hvd::ReduceOp::sum,
                                                .process_set = set.id,
                                                .context = context.get()});
        if (!right(data, context->ranks_of(set.id))) {
          say("wrong");
          return 1;
        }
      }
    }
    hvd::barrier({.context = context.get()});
    std::array<long, 4> meanwhile = carried();
    for (std::size_t i = 0; i < meanwhile.size(); ++i) meanwhile[i] -= before[i];
    say(fmt::format("ok {}", fmt::join(meanwhile, " ")));
    context->shutdown();
  } catch (const hvd::Error& error) {
    say("error " + std::string(to_string(error.code())) + ": " + error.what());
  }
  return 0;
}
