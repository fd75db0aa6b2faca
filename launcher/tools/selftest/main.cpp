// hvd_selftest [-v] tests whether every operation works between these hosts, and measures how fast.
// Run it with the hosts of the job in question: hvdrun -np 4 -H a:2,b:2 hvd_selftest -v. Rank 0
// prints the results. The exit status is 0, 1 when a result was wrong or the job failed, or 64 for
// a wrong command line.
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/internal/session.hpp>
#include <hvd/hvd.hpp>

#include "advice.hpp"
#include "checks.hpp"
#include "engines.hpp"
#include "plan/machine.hpp"
#include "plan/this_host.hpp"
#include "rates.hpp"
#include "result_table.hpp"

namespace {

using namespace hvd::selftest;
using hvd::Context;

constexpr int kUsage = 64;

/// Shows the text at once, so that the last text on the screen precedes a test that hangs.
void say(bool speaks, const std::string& text) {
  if (!speaks) return;
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

std::vector<HostFacts> gather_hosts(Context& context) {
  const auto machine = hvd::launcher::look_at_machine(hvd::launcher::own_environment());
  HostFacts own{.name = machine.host,
                .cores = machine.cores,
                .shared_memory = machine.shared_memory,
                .interface = machine.chosen.value_or(""),
                .interfaces = {}};
  for (const auto& one : machine.interfaces) own.interfaces.push_back(one.name);
  const std::string text = to_text(own);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(context.size()));
  sizes[static_cast<std::size_t>(context.rank())] = std::ssize(text);
  hvd::allreduce(std::span(sizes), {.op = hvd::ReduceOp::sum, .context = &context});
  hvd::Bytes all;
  hvd::allgather_async(text.data(), std::ssize(text), hvd::DType::u8, all, {.context = &context})
      .wait();

  std::vector<HostFacts> hosts;
  std::size_t begin = 0;
  const auto& host_of = context.topology().host_of;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const auto size = static_cast<std::size_t>(sizes[rank]);
    const std::string part(reinterpret_cast<const char*>(all.data()) + begin, size);
    if (static_cast<std::size_t>(host_of[rank]) == hosts.size()) hosts.push_back(facts_from(part));
    begin += size;
  }
  return hosts;
}

/// Collective. Returns the same result on all ranks.
EngineResult test_engine(Context& context, const std::string& name) {
  EngineResult result{.name = name, .available = true, .checks = {}, .rate = {}};
  const std::vector<Check> checks = all_checks();
  std::vector<std::int64_t> wrong;
  for (const Check& check : checks) wrong.push_back(check.run(context));
  hvd::allreduce(std::span(wrong), {.op = hvd::ReduceOp::sum, .context = &context});
  for (std::size_t i = 0; i < checks.size(); ++i) {
    result.checks.push_back({checks[i].name, static_cast<long>(wrong[i])});
  }
  if (context.size() > 1) result.rate = measure_allreduce(context);
  return result;
}

/// Returns whether every result was right.
bool run(bool verbose) {
  const hvd::Config config = hvd::Config::from_environment();
  const bool speaks = config.rank == 0;
  bool right = true;
  Findings findings;
  const auto test = [&](Context& context, const std::string& name) {
    const EngineResult result = test_engine(context, name);
    say(speaks, table(result, verbose));
    right = right && passed(result);
  };

  const auto first = hvd::make_context(config);
  findings.topology = first->topology();
  findings.hosts = gather_hosts(*first);
  findings.has_secret = config.rendezvous != hvd::Rendezvous::store || config.secret_fd >= 0 ||
                        !config.secret_file.empty();
  say(speaks, heading(findings));
  const auto engines = engines_of(findings.topology, config);
  test(*first, engines.front().name);
  findings.rates = measure_pairs(*first);
  first->shutdown();

  for (std::size_t i = 1; i < engines.size(); ++i) {
    const auto context = engines[i].make(config);
    if (context == nullptr) {
      say(speaks,
          table({.name = engines[i].name, .available = false, .checks = {}, .rate = {}}, verbose));
      continue;
    }
    test(*context, engines[i].name);
    context->shutdown();
  }

  say(speaks, table(findings));
  const auto advice = advise(findings);
  if (!advice.empty()) say(speaks, "\nWhat to change:\n");
  for (const std::string& line : advice) say(speaks, fmt::format("- {}\n", line));
  say(speaks, right ? "\nAll results are right.\n" : "\nSome results are WRONG.\n");
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  bool verbose = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "-h" || argument == "--help") {
      std::fputs(
          "Usage: hvdrun -np N [-H hosts] hvd_selftest [-v]\n"
          "Tests every operation and measures how fast the ranks reach each other.\n",
          stdout);
      return 0;
    }
    if (argument != "-v" && argument != "--verbose") {
      std::fprintf(stderr, "hvd_selftest: unknown argument '%.100s'\n", argv[i]);
      return kUsage;
    }
    verbose = true;
  }
  try {
    return run(verbose) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvd_selftest: %s\n", error.what());
    return 1;
  }
}
