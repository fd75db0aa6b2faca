// Runs a function in several processes of this very program, each of which is a rank.
// docs/how-to/spawn.md lists what the program must observe for that.
#pragma once

#include <hvd/core/standard.hpp>

#if __cplusplus >= 202002L

#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <sys/types.h>

#include <hvd/core/error.hpp>
#include <hvd/core/types.hpp>

namespace hvd {

/// Thrown when a process of `spawn` has failed and the others have been ended.
class ProcessError : public std::runtime_error {
 public:
  struct End {
    int rank = -1;
    pid_t pid = -1;
    std::string text;    ///< what it threw, with the type; empty when it did not throw
    int exit_code = -1;  ///< -1: a signal ended it
    int signal = 0;      ///< 0: it exited
  };
  explicit ProcessError(End end);

  [[nodiscard]] int rank() const noexcept { return end_.rank; }
  [[nodiscard]] pid_t pid() const noexcept { return end_.pid; }
  [[nodiscard]] const std::string& text() const noexcept { return end_.text; }
  [[nodiscard]] int exit_code() const noexcept { return end_.exit_code; }
  [[nodiscard]] int signal() const noexcept { return end_.signal; }

 private:
  End end_;
};

struct SpawnOptions {
  std::chrono::milliseconds timeout{0};  ///< of the whole call; 0: none

  // These are for a program that is started once on every node. All nodes have the same number of
  // processes.
  int nodes = 1;
  int node_rank = 0;
  std::string address{};  ///< "HOST:PORT" of node 0, which serves the store there

  /// A function that gets what the processes write to stdout or stderr, in whole lines, each with
  /// its rank in front ("[1]<stdout>:…"). Both functions are called one at a time, on threads that
  /// `spawn` has made. A function that throws is not called again. When it is null, the processes
  /// write to this process's own stream.
  using TakeOutput = std::function<void(std::string_view lines)>;
  TakeOutput output{};
  TakeOutput error{};
  bool prefix_output_with_timestamp = false;
};

/// Returns the options that the arguments "--init_method tcp://HOST:PORT", "--rank R" and
/// "--world_size N" set. They count nodes. Other arguments are ignored. Throws
/// Errc::invalid_argument, naming the argument that is malformed.
[[nodiscard]] SpawnOptions node_options(int argc, const char* const* argv);

/// Returns whether this process was started by a call of `spawn` that it has not reached yet. It is
/// not a rank before that call, although its environment already has the variables of one.
[[nodiscard]] bool spawn_is_ahead();

/// The place of a call in the program.
struct SpawnSite {
  const char* file = "";
  int line = 0;
  [[nodiscard]] static SpawnSite here(const char* file = __builtin_FILE(),
                                      int line = __builtin_LINE()) {
    return {file, line};
  }
};

namespace detail {

/// Runs the processes of one call, whose results are bytes here, whatever type the function
/// returns.
class SpawnCall {
 public:
  /// In the parent, it starts the processes. In a child that this call has started, it runs `body`
  /// and does not return.
  SpawnCall(const std::function<Bytes(int)>& body, int nprocs, SpawnOptions options,
            SpawnSite site);
  /// Ends the processes and waits for them.
  ~SpawnCall();
  SpawnCall(SpawnCall&&) noexcept;
  SpawnCall& operator=(SpawnCall&&) noexcept;

  [[nodiscard]] std::vector<Bytes> join();
  [[nodiscard]] bool wait_until(Deadline deadline);
  void terminate();
  [[nodiscard]] std::vector<pid_t> pids() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Throws Errc::protocol when a result has another size than its type.
void check_result_size(std::size_t expected, std::size_t actual);

template <typename R>
struct SpawnResult {
  static_assert(std::is_trivially_copyable_v<R> && !std::is_pointer_v<R>,
                "the function of hvd::spawn returns void, std::string, hvd::Bytes or a trivially "
                "copyable type");
  using All = std::vector<R>;
  template <typename F>
  static Bytes run(F& function, int rank) {
    const R result = function(rank);
    Bytes bytes(sizeof(R));
    std::memcpy(bytes.data(), &result, sizeof(R));
    return bytes;
  }
  static All collect(std::vector<Bytes> parts) {
    All results;
    for (const Bytes& part : parts) {
      check_result_size(sizeof(R), part.size());
      R result;
      std::memcpy(&result, part.data(), sizeof(R));
      results.push_back(result);
    }
    return results;
  }
};

template <>
struct SpawnResult<void> {
  using All = void;
  template <typename F>
  static Bytes run(F& function, int rank) {
    function(rank);
    return {};
  }
  static void collect(const std::vector<Bytes>&) {}
};

template <>
struct SpawnResult<Bytes> {
  using All = std::vector<Bytes>;
  template <typename F>
  static Bytes run(F& function, int rank) {
    return function(rank);
  }
  static All collect(std::vector<Bytes> parts) { return parts; }
};

template <>
struct SpawnResult<std::string> {
  using All = std::vector<std::string>;
  template <typename F>
  static Bytes run(F& function, int rank) {
    const std::string text = function(rank);
    Bytes bytes(text.size());
    if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
    return bytes;
  }
  static All collect(const std::vector<Bytes>& parts) {
    All texts;
    for (const Bytes& part : parts) {
      texts.emplace_back(reinterpret_cast<const char*>(part.data()), part.size());
    }
    return texts;
  }
};

}  // namespace detail

/// The processes of a call of `spawn_async`. One thread at a time may use it.
template <typename R>
class Spawned {
 public:
  explicit Spawned(detail::SpawnCall call) : call_(std::move(call)) {}

  /// Waits for all processes and returns the results of this node's ranks, in order. Must be called
  /// at most once. Throws ProcessError when a process failed, Errc::aborted after `terminate`,
  /// Errc::timeout and Errc::resource.
  typename detail::SpawnResult<R>::All join() {
    return detail::SpawnResult<R>::collect(call_.join());
  }
  /// Waits until all processes have ended, but not beyond `deadline`. Returns whether they have.
  [[nodiscard]] bool wait_until(Deadline deadline) { return call_.wait_until(deadline); }
  /// Ends the processes; `join` then throws.
  void terminate() { call_.terminate(); }
  [[nodiscard]] std::vector<pid_t> pids() const { return call_.pids(); }

 private:
  detail::SpawnCall call_;
};

/// Starts `function(rank)` in `nprocs` processes of this program. They run its `main` again up to
/// this call, which does not return there. Throws Errc::invalid_argument, Errc::resource and
/// Errc::unauthenticated.
template <typename F>
[[nodiscard]] auto spawn_async(F function, int nprocs, const SpawnOptions& options = {},
                               SpawnSite site = SpawnSite::here()) {
  using R = std::decay_t<std::invoke_result_t<F&, int>>;
  return Spawned<R>(detail::SpawnCall(
      [&function](int rank) { return detail::SpawnResult<R>::run(function, rank); }, nprocs,
      options, site));
}

/// Does the same and waits. Returns the results by rank, or nothing for a function that returns
/// nothing. Throws ProcessError for the first process that fails, within 2 s, whatever the other
/// processes do.
template <typename F>
auto spawn(F function, int nprocs, const SpawnOptions& options = {},
           SpawnSite site = SpawnSite::here()) {
  return spawn_async(std::move(function), nprocs, options, site).join();
}

}  // namespace hvd

#endif
