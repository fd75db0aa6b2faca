#include "advice.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hvd/core/internal/text.hpp>
#include <hvd/core/internal/wire.hpp>

namespace hvd::selftest {
namespace {

/// The bytes per second below which a network counts as slow. Gigabit Ethernet gives more.
constexpr double kSlowNetwork = 100e6;
/// A pair of ranks is reported when its rate is this many times below the median of its kind.
constexpr double kOutlier = 3.0;
/// NCCL and Open MPI want some tens of MiB a rank.
constexpr std::uint64_t kSmallShm = std::uint64_t{128} << 20;
constexpr std::size_t kMaxText = 65'536;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

const HostFacts& host_of(const Findings& findings, int rank) {
  const int host = findings.topology.host_of.at(static_cast<std::size_t>(rank));
  return findings.hosts.at(static_cast<std::size_t>(host));
}

bool crosses(const Findings& findings, const Pair& pair) {
  return &host_of(findings, pair.from) != &host_of(findings, pair.to);
}

std::vector<double> rates_of(const Findings& findings, bool between_hosts) {
  std::vector<double> rates;
  for (const PairRate& one : findings.rates) {
    if (crosses(findings, one.pair) == between_hosts) rates.push_back(one.bytes_per_second);
  }
  return rates;
}

std::string other_interfaces(const HostFacts& host) {
  std::vector<std::string> others;
  std::copy_if(host.interfaces.begin(), host.interfaces.end(), std::back_inserter(others),
               [&](const std::string& name) { return name != host.interface; });
  return fmt::format("{}", fmt::join(others, ", "));
}

/// Returns the first host that has another interface to try, or null when no host has one.
const HostFacts* with_a_choice(const Findings& findings) {
  for (const HostFacts& host : findings.hosts) {
    if (host.interfaces.size() > 1) return &host;
  }
  return nullptr;
}

void advise_on_network(const Findings& findings, std::vector<std::string>& advice) {
  const double usual = median(rates_of(findings, true));
  if (usual > 0 && usual < kSlowNetwork) {
    std::string line = fmt::format("The network carries {:.0f} MB/s between hosts.", usual / 1e6);
    if (const HostFacts* host = with_a_choice(findings)) {
      line += fmt::format(" {} was reached by {} and also has {}: try --network-interfaces.",
                          host->name, host->interface, other_interfaces(*host));
    }
    advice.push_back(std::move(line));
  }
  for (const bool between_hosts : {true, false}) {
    const double middle = median(rates_of(findings, between_hosts));
    for (const PairRate& one : findings.rates) {
      if (crosses(findings, one.pair) != between_hosts) continue;
      if (one.bytes_per_second * kOutlier >= middle) continue;
      const HostFacts& from = host_of(findings, one.pair.from);
      const HostFacts& to = host_of(findings, one.pair.to);
      advice.push_back(fmt::format(
          "Rank {} on {} reaches rank {} on {} at {:.0f} MB/s, others manage {:.0f}: look at {}.",
          one.pair.from, from.name, one.pair.to, to.name, one.bytes_per_second / 1e6, middle / 1e6,
          between_hosts ? fmt::format("{} of {} and {} of {}", from.interface, from.name,
                                      to.interface, to.name)
                        : "what else runs there"));
    }
  }
}

void advise_on_hosts(const Findings& findings, std::vector<std::string>& advice) {
  const auto& host_of_rank = findings.topology.host_of;
  std::set<std::ptrdiff_t> ranks_per_host;
  for (std::size_t index = 0; index < findings.hosts.size(); ++index) {
    const HostFacts& host = findings.hosts[index];
    const auto ranks =
        std::count(host_of_rank.begin(), host_of_rank.end(), static_cast<int>(index));
    ranks_per_host.insert(ranks);
    if (ranks > host.cores) {
      advice.push_back(fmt::format("{} ranks share {} core{} of {}: start fewer of them there.",
                                   ranks, host.cores, host.cores == 1 ? "" : "s", host.name));
    }
    if (host.shared_memory < kSmallShm) {
      advice.push_back(
          fmt::format("/dev/shm of {} has {} MiB, which NCCL and MPI may find too small: give the "
                      "container more (docker run --shm-size=1g); hvd itself does not need it.",
                      host.name, host.shared_memory >> 20U));
    }
  }
  if (ranks_per_host.size() > 1) {
    advice.push_back("The hosts have different numbers of ranks: the fullest sets the pace.");
  }
}

}  // namespace

std::vector<std::string> advise(const Findings& findings) {
  std::vector<std::string> advice;
  if (!findings.has_secret && findings.hosts.size() > 1) {
    advice.emplace_back(
        "The ranks have no secret: anybody on the network can join. Start them with hvdrun, or set "
        "HVD_SECRET_FILE.");
  }
  advise_on_network(findings, advice);
  advise_on_hosts(findings, advice);
  return advice;
}

std::string to_text(const HostFacts& facts) {
  WireWriter to;
  to.text(facts.name);
  to.i32(facts.cores);
  to.u64(facts.shared_memory);
  to.text(facts.interface);
  to.u32(static_cast<std::uint32_t>(facts.interfaces.size()));
  for (const std::string& name : facts.interfaces) to.text(name);
  return std::string(detail::text_of(to.take()));
}

HostFacts facts_from(const std::string& text) {
  WireReader from(detail::bytes_of(text), "host facts");
  HostFacts facts;
  facts.name = from.text(kMaxText);
  facts.cores = from.i32();
  facts.shared_memory = from.u64();
  facts.interface = from.text(kMaxText);
  facts.interfaces.resize(from.count(sizeof(std::uint32_t)));
  for (std::string& name : facts.interfaces) name = from.text(kMaxText);
  from.finish();
  return facts;
}

}  // namespace hvd::selftest
