// Declares the context of one rank in one job, the object through which a user calls hvd.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <hvd/core/arena.hpp>
#include <hvd/core/config.hpp>
#include <hvd/core/process_set.hpp>
#include <hvd/core/request.hpp>
#include <hvd/core/stats.hpp>
#include <hvd/core/topology.hpp>
#include <hvd/core/work.hpp>

namespace hvd {

class Backend;
class ReadyFence;
class Session;

/// Owns the session, the coordinator, the executor and the backends. Any thread may call any
/// method. Several contexts may live in one process.
class Context {
 public:
  /// A program calls `make_context` (hvd/hvd.hpp), which calls this; the types of the parameters
  /// are internal. Collective. Backends are asked in order; the first that supports an operation
  /// runs it, and every rank must pass the same list. Without `fence` several ranks negotiate every
  /// operation for ever. `arena()` returns `arena`, which the backends use.
  Context(std::unique_ptr<Session> session, std::vector<std::unique_ptr<Backend>> backends,
          std::unique_ptr<ReadyFence> fence = nullptr, std::shared_ptr<Arena> arena = nullptr);
  /// Calls `shutdown()` and logs its errors. While an exception unwinds the stack it calls
  /// `disconnect()` instead, since the other ranks may wait for operations that this rank will not
  /// submit.
  ~Context();
  /// Leaves without a shutdown, so that the other ranks see this rank as lost. It serves the end of
  /// a process that did not shut down; later calls throw Errc::shut_down.
  void disconnect() noexcept;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  [[nodiscard]] const Topology& topology() const noexcept;
  [[nodiscard]] int rank() const noexcept { return topology().rank; }
  [[nodiscard]] int size() const noexcept { return topology().size; }
  [[nodiscard]] const Config& config() const noexcept;
  /// Returns the memory in which tensors are reduced without a copy, or null where the ranks share
  /// no memory.
  [[nodiscard]] const std::shared_ptr<Arena>& arena() const noexcept;

  /// Hands one operation to the coordinator and returns at once. Ranks may submit in any order;
  /// an empty name gets one from the order of unnamed calls of that kind, since the last join.
  /// Throws invalid_argument, duplicate_name, shut_down, unsupported, and the sticky error of a
  /// failed context; everything else arrives through the `Work`.
  [[nodiscard]] Work submit(Submission submission);

  /// Submits an operation and waits for it. This costs less than `submit` and `wait`, because the
  /// calling thread runs the collective itself where it can.
  void run(Submission submission);

  /// Submits several operations of one process set that become ready together: none runs before all
  /// are pending on all ranks, and when one cannot run none does. `group` becomes the name of their
  /// group; when it is empty, the name comes from the order of such calls. An operation without a
  /// name is called "<group>/<its index>". Either all are submitted or none is. Every rank submits
  /// the same members: where ranks differ, all members fail with Errc::mismatch on every rank.
  /// Throws like `submit`; a group whose name is still pending on this rank is a duplicate_name.
  [[nodiscard]] std::vector<Work> submit_group(std::vector<Submission> submissions,
                                               std::string group = {});

  /// Declares that this rank has no more data. Waits until every rank has joined and returns the
  /// last one to do so. Until then this rank takes part in the others' allreduces with the identity
  /// element of the operation; anything that needs every rank's data fails on them with
  /// Errc::unsupported. Averages divide by the number of ranks, or by the number that took part
  /// when the first rank to join asks for that. Unnamed calls are counted anew on all ranks when
  /// the join is complete; operations that other threads submit at that moment need names.
  int join(bool average_over_contributors = false);

  /// Returns true on all ranks at the same call, once any rank was asked to stop: by SIGTERM, by
  /// SIGUSR1, or by `request_stop` (hvd/core/stop.hpp). Every rank calls it at the same place of
  /// its loop, equally often before it joins. Each call submits an average of one f32, for which
  /// the next call waits, so that the ranks stop one step after the request; the engine fuses it
  /// with f32 gradients. Collective. The first call takes over SIGTERM and SIGUSR1, unless the
  /// program handles or ignores them; a program that never calls it dies of them as usual. Throws
  /// like `submit` and `Work::wait`.
  [[nodiscard]] bool stop_requested();

  /// Returns true on all ranks at the same call, once any rank has passed true. Otherwise it is
  /// like `stop_requested`, of which it is independent. `hvd::elastic::check_host_updates` calls
  /// it.
  [[nodiscard]] bool agree_on_change(bool wanted);

  /// Like `agree_on_change`, of which it is independent, for the end of all training in an elastic
  /// job. `hvd::stop_requested` calls it there.
  [[nodiscard]] bool agree_on_stop(bool wanted);

  /// Makes a process set of `ranks`, which are ascending and without duplicates. Collective: all
  /// ranks of the context call it with the same ranks. The set's operations are ordered with all
  /// others, so sets may overlap. If the ranks of a host share memory, a rank can be in at most 511
  /// different sets. A pair of ranks that exchange messages counts as one, and so does a set that
  /// was removed, but a set with the same ranks as an earlier one does not count again. After that
  /// the context fails with Errc::resource.
  [[nodiscard]] ProcessSet add_process_set(const std::vector<int>& ranks);
  /// Collective over all ranks. Operations pending in the set fail with Errc::invalid_argument.
  void remove_process_set(const ProcessSet& set);
  /// Returns the ranks of the set in the context. Throws invalid_argument when the set does not
  /// exist.
  [[nodiscard]] std::vector<int> ranks_of(std::int32_t process_set) const;

  /// Returns the counters since the context began and the times of the last steps.
  [[nodiscard]] Stats stats() const;
  /// Ends a step of the training and begins the next, for `Stats::step`. Does not communicate. The
  /// optimizers call it at the end of `step()`, and `DistributedDataParallel` after each reducing
  /// pass.
  void mark_step();
  /// Does what `mark_step` does, which then does nothing any more. A program calls it once per step
  /// where several optimizers or passes make one step.
  void step_done();
  /// Writes what happens to every operation of this rank to `path`, which `timeline_path` makes,
  /// until `stop_timeline` or the end. Throws Errc::invalid_argument when a timeline is being
  /// written already, and Errc::resource when the file cannot be written.
  void start_timeline(const std::string& path);
  void stop_timeline() noexcept;

  /// Makes the context fail on every rank: pending and later operations throw Errc::aborted with
  /// `reason` and this rank as the culprit. Does not block.
  void abort(const std::string& reason) noexcept;
  /// Waits until every rank has called it, at most `Config::shutdown_timeout`. Wait for all
  /// operations before: one that is still pending either completes or fails with Errc::shut_down.
  /// Later calls do nothing.
  void shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hvd
