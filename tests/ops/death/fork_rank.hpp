// Runs a rank in a process of its own that is a copy of the test.
#pragma once

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include <sys/prctl.h>
#include <sys/types.h>
#include <unistd.h>

namespace hvd::test {

/// Forks, and returns the child's process id, or -1. The child exits with the int that `body`
/// returns, or with 99 when `body` throws. It never returns to GoogleTest, which would run the
/// remaining tests in the child, and each of them would fork again. The child dies with the thread
/// that calls this. To be called before this process has threads.
template <class Body>
[[nodiscard]] pid_t fork_rank(const Body& body) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(99);  // the parent died before the call above
  try {
    std::_Exit(body());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "a forked rank threw: %s\n", error.what());
  }
  std::_Exit(99);
}

}  // namespace hvd::test
