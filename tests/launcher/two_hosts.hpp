// Two hosts named a and b on one machine. Each has its own network, host name, mounts, processes
// and an sshd, which accepts root with a key made here. A cable connects them.
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
  /// Returns what this machine lacks for this; empty: nothing.
  [[nodiscard]] static std::string missing();

  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// A directory that both hosts share under the same path.
  [[nodiscard]] const Directory& shared() const noexcept { return shared_; }

  /// Returns the command as a user on `host` types it in the directory `shared()/work`.
  [[nodiscard]] test::ProcessOptions on(const std::string& host,
                                        std::vector<std::string> command) const;
  /// Disconnects or connects the cable.
  void set_cable(bool plugged) const;

  /// Returns the processes of a host except its init and sshd, numbered as in this process.
  [[nodiscard]] std::vector<pid_t> processes(const std::string& host) const;
  /// Lists the processes of both hosts, one on each line.
  [[nodiscard]] std::string left() const;
  /// Waits until `left` is empty; false at the deadline.
  [[nodiscard]] bool all_gone(Deadline deadline) const;
  /// Lists the files in a host's /dev/shm.
  [[nodiscard]] std::vector<std::string> shared_memory(const std::string& host) const;
  /// Lists the named Unix sockets of a host.
  [[nodiscard]] std::vector<std::string> sockets(const std::string& host) const;
  /// Returns the output of sshd on that host.
  [[nodiscard]] std::string log(const std::string& host) const;

 private:
  void make_keys() const;
  void start(const std::string& host, std::unique_ptr<test::Process>& process, pid_t& init) const;
  [[nodiscard]] pid_t init_of(const std::string& host) const;

  Directory shared_;
  std::unique_ptr<test::Process> a_;
  std::unique_ptr<test::Process> b_;
  pid_t init_a_ = -1;  ///< process 1 of the host, numbered as in this process
  pid_t init_b_ = -1;
};

/// Returns the only child of `pid`, or -1 when there is none yet.
[[nodiscard]] pid_t child_of(pid_t pid);
/// Returns the name of a process.
[[nodiscard]] std::string name_of(pid_t pid);
/// Returns the state of a process as a letter, as ps does, or '?' when there is no such process.
[[nodiscard]] char state_of(pid_t pid);
[[nodiscard]] std::string command_of(pid_t pid);

}  // namespace hvd::launcher
