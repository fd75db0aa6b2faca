// Declares functions for descriptors that the parts of hvdrun share.
#pragma once

#include <hvd/core/internal/fd.hpp>

namespace hvd::launcher {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

/// Makes a pipe whose ends close on exec. Throws LaunchError (71).
[[nodiscard]] Pipe make_pipe();

struct SocketPair {
  UniqueFd ours;
  UniqueFd theirs;  ///< for a child of this process
};

/// Makes a pair of Unix sockets of a type, such as SOCK_STREAM, that close on exec. Throws
/// LaunchError (71).
[[nodiscard]] SocketPair make_socket_pair(int type);

/// Returns another descriptor of the same file, 3 or above, that closes on exec. Throws LaunchError
/// (71).
[[nodiscard]] UniqueFd duplicate(int fd);

/// Opens /dev/null for reading and writing. Throws LaunchError (71).
[[nodiscard]] UniqueFd open_null();

/// Returns a descriptor that becomes readable when the child `pid`, which has not been waited for,
/// has ended. Throws LaunchError (71).
[[nodiscard]] UniqueFd open_pidfd(int pid);

/// Raises the soft limit on open descriptors to the hard limit, since the streams of many ranks or
/// hosts exceed the usual one. Must be called before any thread is started. Later calls do nothing.
void raise_descriptor_limit() noexcept;

/// Undoes `raise_descriptor_limit`, in a child between fork and exec, because programs that use
/// select() fail with descriptors above 1023, which a high limit allows. Does nothing in a process
/// that never raised the limit. It is async-signal-safe.
void restore_descriptor_limit() noexcept;

/// Opens /dev/null as 0, 1 and 2 where they are closed, so that no other file gets these numbers.
void fill_standard_descriptors();

}  // namespace hvd::launcher
