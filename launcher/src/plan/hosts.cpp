#include "plan/hosts.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/internal/address.hpp>
#include <hvd/core/internal/text.hpp>

#include "base/exit_codes.hpp"
#include "base/text.hpp"

namespace hvd::launcher {
namespace {

constexpr int kMaxSlots = 65'536;
constexpr std::size_t kMaxHostfile = std::size_t{16} << 20;

char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int parse_slots(std::string_view item, std::string_view digits) {
  const auto slots = detail::to_number<int>(digits);
  if (!slots || *slots < 1 || *slots > kMaxSlots) {
    refuse_value("host", item, fmt::format("the slots are not a number from 1 to {}", kMaxSlots));
  }
  return *slots;
}

HostSpec parse_host(std::string_view whole, int slots = 1) {
  HostSpec host;
  host.slots = slots;
  std::string_view item = whole;
  std::string_view rest;
  if (const auto at = item.find('@'); at != std::string_view::npos) {
    host.user = std::string(item.substr(0, at));
    if (!is_user_name(host.user)) refuse_value("host", whole, "not a user name before '@'");
    item = item.substr(at + 1);
  }
  if (item.starts_with('[')) {
    const auto close = item.find(']');
    if (close == std::string_view::npos) refuse_value("host", whole, "']' is missing");
    host.name = std::string(item.substr(1, close - 1));
    if (!is_ipv6_address(host.name)) refuse_value("host", whole, "not an IPv6 address");
    rest = item.substr(close + 1);
    if (!rest.empty() && rest.front() != ':')
      refuse_value("host", whole, "expected ':slots' after ']'");
  } else {
    const auto colon = item.find(':');
    host.name = std::string(item.substr(0, colon));
    if (!is_host_name(host.name)) refuse_value("host", whole, "not a host name or address");
    rest = colon == std::string_view::npos ? std::string_view{} : item.substr(colon);
  }
  if (!rest.empty()) host.slots = parse_slots(whole, rest.substr(1));
  return host;
}

/// Returns the host of the same name and user.
auto find_host(std::vector<HostSpec>& hosts, const HostSpec& host) {
  return std::find_if(hosts.begin(), hosts.end(), [&](const HostSpec& other) {
    return same_name(other.name, host.name) && other.user == host.user;
  });
}

void add(std::vector<HostSpec>& hosts, HostSpec host) {
  const auto known = find_host(hosts, host);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
  } else {
    known->slots = std::min(known->slots + host.slots, kMaxSlots);
  }
}

std::vector<std::string_view> words_of(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  std::vector<std::string_view> words;
  for (auto begin = line.find_first_not_of(kBlank); begin != std::string_view::npos;) {
    const auto end = std::min(line.find_first_of(kBlank, begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(kBlank, end);
  }
  return words;
}

/// Parses one line of a hostfile without its comment. "max_slots=n" of mpirun's files is accepted
/// and ignored, because hvdrun never starts more ranks than there are slots.
void parse_line(std::string_view line, std::vector<HostSpec>& hosts) {
  const auto words = words_of(line);
  if (words.empty()) return;
  HostSpec host = parse_host(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) {
    const auto word = words[i];
    const auto value = word.substr(std::min(word.find('=') + 1, word.size()));
    if (word.starts_with("slots=")) {
      host.slots = parse_slots(word, value);
    } else if (word.starts_with("max_slots=") || word.starts_with("max-slots=")) {
      static_cast<void>(parse_slots(word, value));
    } else {
      refuse_value("host", word, "expected slots=n");
    }
  }
  add(hosts, std::move(host));
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return to_lower(x) == to_lower(y); });
}

bool is_user_name(std::string_view name) noexcept {
  constexpr std::size_t kLongest = 32;
  const auto fits = [](char c) {
    return detail::is_alphanumeric(c) || c == '_' || c == '.' || c == '-';
  };
  return !name.empty() && name.size() <= kLongest && name.front() != '-' && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), fits);
}

std::vector<HostSpec> parse_hosts(std::string_view text) {
  std::vector<HostSpec> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    add(hosts, parse_host(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return hosts;
}

std::vector<HostSpec> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<HostSpec> hosts;
  int number = 0;
  for (const std::string_view line : detail::split_at(text, '\n')) {
    ++number;
    try {
      parse_line(line.substr(0, line.find('#')), hosts);
    } catch (const LaunchError& error) {
      throw LaunchError(kExitUsage,
                        fmt::format("{}, line {}: {}", in_quotes(name), number, error.what()));
    }
  }
  if (hosts.empty()) throw LaunchError(kExitUsage, fmt::format("{}: no host", in_quotes(name)));
  return hosts;
}

std::vector<HostSpec> parse_discovered_hosts(std::string_view text, int slots) {
  std::vector<HostSpec> hosts;
  for (const std::string_view line : detail::split_at(text, '\n')) {
    constexpr std::string_view kBlank = " \t\r";
    const auto begin = line.find_first_not_of(kBlank);
    if (begin == std::string_view::npos) continue;
    const auto end = line.find_last_not_of(kBlank) + 1;
    add(hosts, parse_host(line.substr(begin, end - begin), slots));
  }
  return hosts;
}

std::vector<HostSpec> read_hostfile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxHostfile + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad() || (file.gcount() == 0 && !file.eof())) {
    throw LaunchError(kExitUsage, fmt::format("cannot read the hostfile {}", in_quotes(path)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxHostfile) {
    throw LaunchError(kExitUsage, fmt::format("{}: too long for a hostfile", in_quotes(path)));
  }
  return parse_hostfile(text, path);
}

std::vector<int> KnownHosts::list(const std::vector<HostSpec>& listed) {
  std::vector<int> slots(hosts_.size());
  for (const HostSpec& host : listed) {
    const auto known = find_host(hosts_, host);
    const auto index = static_cast<std::size_t>(known - hosts_.begin());
    if (known == hosts_.end()) {
      hosts_.push_back(host);
      slots.push_back(0);
    }
    slots[index] = hosts_[index].slots = host.slots;
  }
  return slots;
}

}  // namespace hvd::launcher
