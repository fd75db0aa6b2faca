// Runs a program as a child of the test: arguments, environment, both output streams, a deadline.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include <hvd/core/internal/fd.hpp>
#include <hvd/core/types.hpp>

namespace hvd::test {

struct ProcessOptions {
  std::vector<std::string> arguments;  ///< the program first, looked for along PATH
  /// Added to this process's environment; a variable without a value is removed.
  std::map<std::string, std::optional<std::string>> environment;
  std::string directory;       ///< working directory; empty: that of this process
  std::string input;           ///< its standard input, at most 64 KiB
  int output = -1;             ///< receives its stdout instead of the capture
  bool close_output = false;   ///< starts it without descriptor 1
  std::vector<int> inherited;  ///< descriptors that it inherits with the same numbers
};

struct ProcessResult {
  int status = 0;  ///< as from waitpid
  std::string out;
  std::string err;

  [[nodiscard]] bool exited() const noexcept;
  [[nodiscard]] int exit_code() const noexcept;  ///< -1 when it was killed
  [[nodiscard]] int signal() const noexcept;     ///< 0 when it exited
};

/// A child process in its own process group, with default signal handling. It never outlives this
/// object, nor the thread that made it. Every wait throws std::runtime_error with the output so far
/// when its deadline passes.
class Process {
 public:
  explicit Process(ProcessOptions options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// Returns once `text` was written to its stdout (or stderr).
  void wait_for_out(const std::string& text, Deadline deadline);
  void wait_for_err(const std::string& text, Deadline deadline);
  /// Waits for the end of the process and returns its output. Call it once.
  [[nodiscard]] ProcessResult wait(Deadline deadline);

  [[nodiscard]] const std::string& out() const noexcept { return result_.out; }
  [[nodiscard]] const std::string& err() const noexcept { return result_.err; }

 private:
  void wait_for(const std::string& captured, const std::string& text, Deadline deadline);
  [[nodiscard]] bool pump(Deadline deadline);

  pid_t pid_ = -1;
  UniqueFd over_;
  UniqueFd out_;
  UniqueFd err_;
  ProcessResult result_;
};

/// Starts the program and waits for its end.
[[nodiscard]] ProcessResult run_process(ProcessOptions options, Deadline deadline);

/// Detects the end of all processes that inherited its write end.
class Lifeline {
 public:
  Lifeline();
  /// Add this to `ProcessOptions::inherited`.
  [[nodiscard]] int fd() const noexcept { return write_.get(); }
  /// Closes the write end in this process. Returns false when another process still has it at the
  /// deadline.
  [[nodiscard]] bool all_gone(Deadline deadline);

 private:
  UniqueFd read_;
  UniqueFd write_;
};

[[nodiscard]] inline Deadline in(std::chrono::milliseconds time) { return Clock::now() + time; }

}  // namespace hvd::test
