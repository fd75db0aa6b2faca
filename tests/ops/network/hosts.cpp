#include "hosts.hpp"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace hvd::test {
namespace {

constexpr const char* kBridge = "br0";
constexpr const char* kOtherBridge = "br1";

ProcessResult run(std::vector<std::string> arguments) {
  ProcessOptions options;
  options.arguments = std::move(arguments);
  return run_process(std::move(options), in(std::chrono::seconds(20)));
}

void must(const std::vector<std::string>& arguments) {
  const ProcessResult result = run(arguments);
  if (result.exit_code() == 0) return;
  throw std::runtime_error(fmt::format("{}: {}", fmt::join(arguments, " "), result.err));
}

std::string port(int host) { return fmt::format("port{}", host); }

}  // namespace

std::string Hosts::missing() {
  if (::geteuid() != 0) return "root";
  for (const char* program : {"ip", "tc"}) {
    if (run({"sh", "-c", fmt::format("command -v {}", program)}).exit_code() != 0) return program;
  }
  const std::string name = fmt::format("hvd-test-{}-probe", ::getpid());
  const bool able =
      run({"ip", "netns", "add", name}).exit_code() == 0 &&
      run({"ip", "-n", name, "link", "add", "probe0", "type", "veth"}).exit_code() == 0 &&
      run({"ip", "-n", name, "link", "add", kBridge, "type", "bridge"}).exit_code() == 0;
  static_cast<void>(run({"ip", "netns", "del", name}));
  return able ? "" : "network namespaces with veth and a bridge";
}

Hosts::Hosts(int count) {
  for (int host = 0; host <= count; ++host) {
    names_.push_back(fmt::format("hvd-test-{}-{}", ::getpid(), host));
  }
  for (const std::string& one : names_) must({"ip", "netns", "add", one});
  for (const char* const bridge : {kBridge, kOtherBridge}) {
    must({"ip", "-n", wire(), "link", "add", bridge, "type", "bridge"});
    must({"ip", "-n", wire(), "link", "set", bridge, "up"});
  }
  for (int host = 0; host < count; ++host) {
    must({"ip", "-n", name(host), "link", "set", "lo", "up"});
    connect(host, fmt::format("other{}", host), kOtherBridge, kOther,
            fmt::format("10.79.0.{}", host + 1));
    connect(host, port(host), kBridge, kDevice, address(host));
  }
}

void Hosts::connect(int host, const std::string& port, const char* bridge, const char* device,
                    const std::string& address) const {
  must({"ip", "link", "add", port, "netns", wire(), "type", "veth", "peer", "name", device, "netns",
        name(host)});
  must({"ip", "-n", wire(), "link", "set", port, "master", bridge, "up"});
  must({"ip", "-n", name(host), "addr", "add", address + "/24", "dev", device});
  must({"ip", "-n", name(host), "link", "set", device, "up"});
}

Hosts::~Hosts() {
  for (const std::string& one : names_) {
    try {
      static_cast<void>(run({"ip", "netns", "del", one}));
    } catch (const std::exception&) {  // an empty namespace at most stays
    }
  }
}

std::string Hosts::address(int host) const { return fmt::format("10.78.0.{}", host + 1); }

std::vector<std::string> Hosts::on(int host, std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {"ip", "netns", "exec", name(host)});
  return arguments;
}

void Hosts::cut(int host) const { must({"ip", "-n", wire(), "link", "set", port(host), "down"}); }

void Hosts::blackhole(int host) const {
  must({"ip", "-n", name(host), "route", "replace", "blackhole", "10.78.0.0/24"});
}

void Hosts::limit(int host, const std::string& rate) const {
  for (const auto& [space, device] :
       {std::pair{wire(), port(host)}, std::pair{name(host), std::string(kDevice)}}) {
    must({"tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst",
          "16kb", "latency", "200ms"});
  }
}

std::string Hosts::processes(int host) const {
  return run({"ip", "netns", "pids", name(host)}).out;
}

}  // namespace hvd::test
