// Declares elastic training: a function runs as one generation of ranks after the other, each with
// a context of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <hvd/core/context.hpp>

namespace hvd {

/// Holds what a worker carries from one generation into the next. `elastic_run` calls all functions
/// but `commit`, `restore` and `on_reset`, on its own thread.
class ElasticStateBase {
 public:
  ElasticStateBase() = default;
  virtual ~ElasticStateBase() = default;
  ElasticStateBase(const ElasticStateBase&) = delete;
  ElasticStateBase& operator=(const ElasticStateBase&) = delete;

  /// Keeps a copy of the state in memory. All ranks call it at the same place.
  virtual void commit() = 0;
  /// Goes back to the copy of the last `commit`. Does not communicate.
  virtual void restore() = 0;
  /// Makes the state of all ranks equal. It is called at the start of every generation, before the
  /// function of `elastic_run`. Collective in `context`, which is the default context. May throw
  /// what a collective throws, and is then called again in the next generation.
  virtual void synchronize(Context& context) = 0;
  /// Is called on all ranks when they have agreed to end the generation and the function of
  /// `elastic_run` has been left. They can still communicate. May throw what a collective throws.
  virtual void change_agreed() {}
  /// Is called when a generation ends, however it does, while the default context still exists.
  /// That may have failed, or be shut down, so the function does not communicate.
  virtual void generation_ended() noexcept {}

  /// Adds a function that is called in each generation of this worker but its first, when `rank()`
  /// and `size()` are those of the new generation and before the state is sent to other ranks, in
  /// the order of their addition. It does not communicate, since workers that have just joined do
  /// not call it. Its usual purpose is a learning rate that follows the number of ranks.
  void on_reset(std::function<void()> callback);
  /// Calls these functions, or lets `synchronize` call them. It is called before `synchronize`.
  virtual void reset() { call_reset_callbacks(); }

 protected:
  void call_reset_callbacks() const;

 private:
  std::vector<std::function<void()>> callbacks_;
};

/// Runs `run` in a job whose ranks come and go. Returns true when `run` has returned on all ranks
/// of a generation, and false when this worker was asked to leave; the process should then end with
/// exit code 0.
///
/// In an elastic job, which hvdrun starts, each generation of ranks gets a new default context, in
/// which `state.synchronize` and then `run` are called. Ranks exist only there: `init()` has no
/// effect in an elastic job, and `rank()` throws Errc::not_initialized before and after
/// `elastic_run`. A generation ends when `run` lets pass an Errc::peer_lost, aborted, timeout or
/// shut_down of a collective, or an Errc::resource that names another rank, or when the ranks
/// agree in `elastic::check_host_updates`. The worker then waits for the next generation and calls
/// `run` again, which goes on where the state says. Any other exception leaves `elastic_run`. This
/// worker then leaves the generation, and the others go on without it.
///
/// When `run` throws, or returns, no other thread may use the default context any more. After `run`
/// has returned, `elastic_run` waits for the other ranks like `Context::shutdown`. When one of them
/// is lost meanwhile, the others need this worker's state, and `run` is called once more.
///
/// In a job that is not elastic, this function calls `init()`, `state.synchronize` and `run` once,
/// and every exception leaves it.
///
/// One thread calls it at a time. Throws Errc::invalid_argument when `run` is empty, in the body of
/// `threads`, and inside of another call; Errc::aborted when hvdrun has ended; and what `run`, the
/// state and `init` throw, but for the errors above.
bool elastic_run(ElasticStateBase& state, const std::function<void()>& run);

namespace elastic {

/// Returns whether hvdrun has started this process as a worker of an elastic job. Any thread may
/// call it.
[[nodiscard]] bool active();

/// Returns the number of the generation in which this worker is, from 1 on. It is the same on all
/// ranks, and grows with each generation, though not always by one. Returns 0 outside of
/// `elastic_run` and in a job that is not elastic. Any thread may call it.
[[nodiscard]] std::uint32_t generation() noexcept;

/// Ends the generation on all ranks at the same call when ranks wait to join, when ranks are to
/// leave, or when one was asked to leave by SIGTERM, SIGUSR1 or `request_stop`: it then throws an
/// exception, which is no std::exception, through the function of `elastic_run`. Every rank calls
/// it at the same place of its loop, between two steps. Each call submits an average of one f32,
/// for which the next call waits, so that the ranks stop one step after the request; the engine
/// fuses it with f32 gradients. Collective. Does nothing in a job that is not elastic. Throws like
/// `Context::submit` and `Work::wait`, and Errc::not_initialized outside of `elastic_run`.
void check_host_updates();

/// Does what `hvd::stop_requested` does in an elastic job: it calls `check_host_updates`, except
/// that it returns true on all ranks at the same call when SIGTERM or SIGUSR1 was sent to hvdrun,
/// and so to all of them. Collective. Returns false in a job that is not elastic.
[[nodiscard]] bool job_stops();

}  // namespace elastic
}  // namespace hvd
