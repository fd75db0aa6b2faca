// Several hosts on one machine: network namespaces, each with a link to each of two switches.
#pragma once

#include <string>
#include <vector>

#include <hvd_test/process.hpp>

namespace hvd::test {

/// Host h is the namespace `name(h)` with the address `address(h)` on the device `kDevice`, and
/// with one more on `kOther`, which comes first in the list of interfaces and leads to the same
/// hosts. The switches are bridges in a namespace of their own. Everything goes with this object.
class Hosts {
 public:
  static constexpr const char* kDevice = "hvd0";
  static constexpr const char* kOther = "hvd1";

  /// Returns what this machine lacks for this; empty: nothing. Root gets the answer in a fraction
  /// of a second.
  [[nodiscard]] static std::string missing();

  /// Throws std::runtime_error.
  explicit Hosts(int count);
  ~Hosts();
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  [[nodiscard]] const std::string& name(int host) const {
    return names_[static_cast<std::size_t>(host)];
  }
  [[nodiscard]] std::string address(int host) const;
  /// Returns the command that runs `arguments` on this host.
  [[nodiscard]] std::vector<std::string> on(int host, std::vector<std::string> arguments) const;

  /// These three functions act on `kDevice`. Cuts the link at the switch.
  void cut(int host) const;
  /// Drops all packets from this host; its link stays up.
  void blackhole(int host) const;
  /// Limits each direction to `rate`, spelled as for tc.
  void limit(int host, const std::string& rate) const;
  /// Returns the processes that still run on that host.
  [[nodiscard]] std::string processes(int host) const;

 private:
  void connect(int host, const std::string& port, const char* bridge, const char* device,
               const std::string& address) const;

  std::vector<std::string> names_;  // of the hosts, then of the switches
  [[nodiscard]] const std::string& wire() const { return names_.back(); }
};

}  // namespace hvd::test
