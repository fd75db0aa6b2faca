// Two hosts named a and b on one machine: each with network, host name, mounts and processes of its
// own, a cable between them, and an sshd that lets root in with a key made here.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hvd_test/process.hpp>
#include <sys/types.h>

#include "directory.hpp"

namespace hvd::launcher {

class TwoHosts {
 public:
  /// What this machine lacks; empty when it can do it.
  [[nodiscard]] static std::string missing();

  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// Shared between the hosts, under the same path.
  [[nodiscard]] const Directory& shared() const noexcept { return shared_; }

  /// The command as somebody on `host` types it who is in the directory `shared()/work`.
  [[nodiscard]] test::ProcessOptions on(const std::string& host,
                                        std::vector<std::string> command) const;
  /// Pulls the cable, or plugs it in again.
  void set_cable(bool plugged) const;

  /// Processes of a host but for its init and sshd, as this process numbers them.
  [[nodiscard]] std::vector<pid_t> processes(const std::string& host) const;
  /// The processes of both hosts, a line each.
  [[nodiscard]] std::string left() const;
  /// Returns once `left` is empty; false at the deadline.
  [[nodiscard]] bool all_gone(Deadline deadline) const;
  /// What lies in the /dev/shm of a host.
  [[nodiscard]] std::vector<std::string> shared_memory(const std::string& host) const;
  /// The named Unix sockets of a host.
  [[nodiscard]] std::vector<std::string> sockets(const std::string& host) const;
  /// What sshd wrote on that host.
  [[nodiscard]] std::string log(const std::string& host) const;

 private:
  void make_keys() const;
  void start(const std::string& host, std::unique_ptr<test::Process>& process, pid_t& init) const;
  [[nodiscard]] pid_t init_of(const std::string& host) const;

  Directory shared_;
  std::unique_ptr<test::Process> a_;
  std::unique_ptr<test::Process> b_;
  pid_t init_a_ = -1;  ///< process 1 of the host, as this process numbers it
  pid_t init_b_ = -1;
};

/// The only child of `pid`, -1 when there is none (yet).
[[nodiscard]] pid_t child_of(pid_t pid);
/// The name a process goes by.
[[nodiscard]] std::string name_of(pid_t pid);
[[nodiscard]] std::string command_of(pid_t pid);

}  // namespace hvd::launcher
