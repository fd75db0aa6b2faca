// What the ranks of a job meet in: the store that an agent serves, and a port for programs that
// read torch's names.
#pragma once

#include <cstdint>
#include <string>

#include <hvd/core/event_loop.hpp>
#include <hvd/core/fd.hpp>
#include <hvd/core/store.hpp>

#include "frames.hpp"

namespace hvd::launcher {

/// Another one for every job: "hvd-" and 16 hexadecimal digits.
[[nodiscard]] std::string random_job_id();

/// A TCP port that nobody else is given while this object lives, though one process may listen on
/// it: bound, not listening, with SO_REUSEADDR. `address` is numeric. Throws LaunchError (71).
class ReservedPort {
 public:
  explicit ReservedPort(const std::string& address);
  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }

 private:
  UniqueFd socket_;
  std::uint16_t number_ = 0;
};

class Rendezvous {
 public:
  /// For `job.meeting` machine or network. Starts a thread, which no signal reaches. Throws
  /// LaunchError, and Error when no interface is what `job.interfaces` asks for.
  explicit Rendezvous(const Prepare& job);

  [[nodiscard]] const std::string& store() const noexcept { return store_.address(); }
  [[nodiscard]] const std::string& host() const noexcept { return host_; }
  [[nodiscard]] std::uint16_t port() const noexcept { return port_.number(); }

 private:
  std::string host_;  ///< numeric
  ReservedPort port_;
  EventLoop loop_;
  StoreServer store_;
};

}  // namespace hvd::launcher
