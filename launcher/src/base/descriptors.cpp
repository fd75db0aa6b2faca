#include "base/descriptors.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/text.hpp"

namespace hvd::launcher {
namespace {

int checked(int result, const char* what) {
  if (result < 0) refuse_system(what);
  return result;
}

// These are globals because the limit, too, belongs to the whole process.
rlimit limit_before{};
bool limit_raised = false;

}  // namespace

Pipe make_pipe() {
  int ends[2];
  checked(::pipe2(ends, O_CLOEXEC), "cannot create a pipe");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

SocketPair make_socket_pair(int type) {
  int ends[2];
  checked(::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends), "cannot create sockets");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

UniqueFd duplicate(int fd) {
  return UniqueFd(checked(::fcntl(fd, F_DUPFD_CLOEXEC, 3), "cannot duplicate a descriptor"));
}

UniqueFd open_null() {
  return UniqueFd(checked(::open("/dev/null", O_RDWR | O_CLOEXEC), "cannot open /dev/null"));
}

UniqueFd open_pidfd(int pid) {
  // glibc has a wrapper since 2.36 only; the system call is older.
  const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  return UniqueFd(checked(fd, "cannot watch a process"));
}

void fill_standard_descriptors() {
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    checked(::open("/dev/null", O_RDWR), "cannot open /dev/null");  // takes the lowest free number
  }
}

void raise_descriptor_limit() noexcept {
  if (limit_raised || ::getrlimit(RLIMIT_NOFILE, &limit_before) != 0) return;
  const rlimit wanted{.rlim_cur = limit_before.rlim_max, .rlim_max = limit_before.rlim_max};
  limit_raised = ::setrlimit(RLIMIT_NOFILE, &wanted) == 0;
}

void restore_descriptor_limit() noexcept {
  if (limit_raised) ::setrlimit(RLIMIT_NOFILE, &limit_before);
}

}  // namespace hvd::launcher
