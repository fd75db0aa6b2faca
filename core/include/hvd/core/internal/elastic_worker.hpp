// Holds a worker's end of the socket on which hvdrun decides about the generations of an elastic
// job.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include <hvd/core/config.hpp>
#include <hvd/core/error.hpp>
#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/internal/fd.hpp>

namespace hvd::detail {

/// Only one thread may call its methods at a time, but any threads `wish` in a generation.
class ElasticWorker {
 public:
  /// Returns the worker that this process is, or null when the job is not elastic. Any thread may
  /// call it. Throws Errc::invalid_argument when HVD_ELASTIC_FD is not hvdrun's socket.
  [[nodiscard]] static ElasticWorker* of_process();

  explicit ElasticWorker(UniqueFd socket) noexcept : socket_(std::move(socket)) {}

  /// Tells hvdrun that this worker has no context, and waits without limit until it is assigned to
  /// a generation. Returns the settings of its context, or nothing when this worker is to leave.
  /// `reason` is the error that ended the last generation, whose rank it blames, or null. Throws
  /// Errc::aborted when hvdrun has closed the socket, and Errc::protocol when it breaks the
  /// protocol.
  [[nodiscard]] std::optional<Config> next_generation(const Error* reason);

  /// This worker has the state of the training in its generation.
  void has_state() noexcept { has_state_ = true; }

  /// This is what the worker votes for. From the first call on, SIGTERM and SIGUSR1 ask this
  /// process to leave, or, after hvdrun's `Stop`, the job to stop, as described at
  /// `Context::stop_requested`.
  struct Wish {
    bool change = false;  ///< hvdrun wants this generation to end, or this process was asked
    bool stop = false;    ///< this process was asked, and so are all others
  };
  /// Blocks only once, for up to 0.5 s after this process was asked. Throws Errc::protocol.
  [[nodiscard]] Wish wish();

 private:
  [[nodiscard]] Waits waits_after(const Error* reason) const;
  void tell(const Waits& waits);
  [[nodiscard]] std::optional<ElasticOrder> receive(Deadline deadline);
  [[nodiscard]] Config take(const Assignment& assignment);

  std::mutex mutex_;  ///< is held by `wish`
  UniqueFd socket_;
  bool closed_ = false;           ///< by hvdrun
  std::uint32_t generation_ = 0;  ///< the last one that this worker was assigned to
  int rank_ = 0;                  ///< in that generation
  int size_ = 0;
  bool change_ordered_ = false;
  bool stop_announced_ = false;
  bool has_state_ = false;  ///< in that generation
  bool was_asked_ = false;  ///< `wish` has seen that this process was asked
};

}  // namespace hvd::detail
