// What the processes of hvd::spawn write, on its way to the functions that take it.
#pragma once

#include <thread>
#include <vector>

#include <hvd/core/fd.hpp>
#include <hvd/spawn.hpp>

#include "descriptors.hpp"
#include "line_mux.hpp"

namespace hvd::launcher {

/// A pipe per process and stream that is taken, and one thread that reads them all.
class SpawnOutput {
 public:
  /// Throws LaunchError when there are no descriptors.
  SpawnOutput(const SpawnOptions& options, int first_rank, int nprocs);
  /// As `finish`.
  ~SpawnOutput();
  SpawnOutput(const SpawnOutput&) = delete;
  SpawnOutput& operator=(const SpawnOutput&) = delete;

  /// For the child; this process's own where nobody takes the stream.
  [[nodiscard]] int descriptor(Stream stream, int local_rank) const;
  /// Once all have been started: reads from now on.
  void start();
  /// Once all are over: hands on what is left. A process that they left behind and that still has
  /// a pipe is not waited for.
  void finish() noexcept;

 private:
  struct Source {
    Pipe pipe;
    int rank = 0;
  };
  struct Taken {
    const SpawnOptions::TakeOutput& take;
    LineMux lines;
    std::vector<Source> sources;  ///< by local rank; empty: nobody takes it
  };

  void read_all() noexcept;

  Taken out_;
  Taken err_;
  UniqueFd over_;  ///< an eventfd
  std::thread thread_;
};

}  // namespace hvd::launcher
