// Several hosts on one machine: network namespaces, each with one link to a switch.
#pragma once

#include <string>
#include <vector>

#include <hvd_test/process.hpp>

namespace hvd::test {

/// Host h is the namespace `name(h)` with the address `address(h)` on the device `kDevice`. The
/// switch is a bridge in a namespace of its own. Everything goes with this object.
class Hosts {
 public:
  static constexpr const char* kDevice = "hvd0";

  /// What this machine lacks for it, empty if nothing. As root, in a fraction of a second.
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
  /// `arguments`, to be run on this host.
  [[nodiscard]] std::vector<std::string> on(int host, std::vector<std::string> arguments) const;

  /// Pulls the plug at the switch.
  void cut(int host) const;
  /// Nothing from this host reaches the others any more; its link stays up.
  void blackhole(int host) const;
  /// Lets `rate` (as tc spells it) through each way.
  void limit(int host, const std::string& rate) const;
  /// Still runs on that host.
  [[nodiscard]] std::string processes(int host) const;

 private:
  std::vector<std::string> names_;  // of the hosts, then of the switch
  [[nodiscard]] const std::string& wire() const { return names_.back(); }
};

}  // namespace hvd::test
