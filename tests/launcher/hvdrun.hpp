// Starts hvdrun as users do.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <hvd_test/process.hpp>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace hvd::launcher {

/// A generous limit, since busy machines and sanitizers are slow. It only has to detect hangs.
inline constexpr std::chrono::seconds kPatience{90};
/// A limit for hvd_selftest, which takes long without optimisation.
inline constexpr std::chrono::seconds kSelftestPatience{240};

/// HVDRUN is the path of the program under test, set by CMake. OMP_NUM_THREADS is set so that
/// hvdrun prints no notice about it.
inline test::ProcessOptions hvdrun(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HVDRUN);
  test::ProcessOptions options;
  options.arguments = std::move(arguments);
  options.environment = {{"OMP_NUM_THREADS", "1"}};
  return options;
}

/// `hvdrun -np N options sh -c script`.
inline test::ProcessOptions hvdrun_script(int ranks, const std::string& script,
                                          const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments = {"-np", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"sh", "-c", script});
  return hvdrun(std::move(arguments));
}

inline test::ProcessResult run(test::ProcessOptions options,
                               std::chrono::seconds patience = kPatience) {
  return test::run_process(std::move(options), test::in(patience));
}

/// Sends the signal again and again, with pauses between, until the process has ended, which the
/// caller still waits for. Returns false at the deadline.
inline bool signal_until_the_end(const test::Process& job, int signal, Deadline deadline,
                                 std::chrono::milliseconds pause = {}) {
  siginfo_t ended{};
  while (ended.si_pid == 0 && Clock::now() < deadline) {
    job.signal(signal);
    ::poll(nullptr, 0, static_cast<int>(pause.count()));
    ::waitid(P_PID, static_cast<id_t>(job.pid()), &ended, WEXITED | WNOHANG | WNOWAIT);
  }
  return ended.si_pid != 0;
}

/// Waits until the process has stopped. Returns false after `kPatience`.
inline bool stops(const test::Process& process) {
  const Deadline deadline = test::in(kPatience);
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(process.pid()), &info, WSTOPPED | WNOHANG) == 0 &&
         info.si_pid == 0 && Clock::now() < deadline) {
    (void)::poll(nullptr, 0, 10);
  }
  return info.si_code == CLD_STOPPED;
}

/// Returns the id of a job with --status.
inline std::string job_id(const test::Process& job) {
  const std::string& said = job.err();
  const auto begin = said.find("this is job ") + 12;
  return said.substr(begin, said.find('\n', begin) - begin);
}

/// Waits until hvdrun can no longer be asked for the status of the job, which has ended then and
/// may have output left. Returns false at the deadline.
inline bool status_ended(const test::Process& job, Deadline deadline) {
  const std::string id = job_id(job);
  for (;;) {
    std::ifstream sockets("/proc/net/unix");
    const std::string all{std::istreambuf_iterator<char>(sockets), {}};
    if (all.find(id) == std::string::npos) return true;
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // only looking tells of the end
  }
}

/// Reads at most `most` bytes, or to the end of the stream.
inline std::string read_some(const UniqueFd& from, std::size_t most, Deadline deadline) {
  std::string text;
  std::array<char, 65536> buffer;
  while (text.size() < most) {
    using std::chrono::duration_cast;
    using std::chrono::milliseconds;
    const auto left = duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd ready{.fd = from.get(), .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, static_cast<int>(left)) != 1) throw std::runtime_error("nothing to read");
    const ssize_t size =
        ::read(from.get(), buffer.data(), std::min(buffer.size(), most - text.size()));
    if (size <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace hvd::launcher
