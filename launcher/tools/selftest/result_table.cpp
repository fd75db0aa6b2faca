#include "result_table.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace hvd::selftest {

bool passed(const EngineResult& result) {
  return std::all_of(result.checks.begin(), result.checks.end(),
                     [](const CheckResult& check) { return check.wrong == 0; });
}

std::string heading(const Findings& findings) {
  const Topology& topology = findings.topology;
  std::string line =
      fmt::format("{} rank{} on {} host{}:", topology.size, topology.size == 1 ? "" : "s",
                  findings.hosts.size(), findings.hosts.size() == 1 ? "" : "s");
  for (std::size_t host = 0; host < findings.hosts.size(); ++host) {
    const auto ranks =
        std::count(topology.host_of.begin(), topology.host_of.end(), static_cast<int>(host));
    const HostFacts& facts = findings.hosts[host];
    line += fmt::format("{} {} ({}{})", host == 0 ? "" : ",", facts.name, ranks,
                        facts.interface.empty() ? "" : fmt::format(", {}", facts.interface));
  }
  return line + "\n";
}

std::string table(const EngineResult& result, bool verbose) {
  if (!result.available) return fmt::format("[ ] {}: not available to these ranks\n", result.name);
  std::string text =
      fmt::format("[{}] {}: {} checks, allreduce of 4 B in {:.0f} us, of 16 MiB at {:.2f} GB/s\n",
                  passed(result) ? 'X' : '!', result.name, result.checks.size(),
                  result.rate.seconds_small * 1e6, result.rate.bytes_per_second / 1e9);
  for (const CheckResult& check : result.checks) {
    if (check.wrong > 0) {
      text += fmt::format("    [!] {}: {} elements are wrong\n", check.name, check.wrong);
    } else if (verbose) {
      text += fmt::format("    [X] {}\n", check.name);
    }
  }
  return text;
}

std::string table(const Findings& findings) {
  std::string text = "\nfrom               to                 GB/s\n";
  const auto place = [&](int rank) {
    const int host = findings.topology.host_of.at(static_cast<std::size_t>(rank));
    return fmt::format("{} on {}", rank, findings.hosts.at(static_cast<std::size_t>(host)).name);
  };
  for (const PairRate& one : findings.rates) {
    text += fmt::format("{:<18} {:<18} {:.2f}\n", place(one.pair.from), place(one.pair.to),
                        one.bytes_per_second / 1e9);
  }
  return findings.rates.empty() ? "" : text;
}

}  // namespace hvd::selftest
