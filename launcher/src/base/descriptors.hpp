// Small things around descriptors that the parts of hvdrun share.
#pragma once

#include <hvd/core/fd.hpp>

namespace hvd::launcher {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

/// Both ends close on exec. Throws LaunchError (71).
[[nodiscard]] Pipe make_pipe();

/// Both ends of a stream socket; they close on exec. Throws LaunchError (71).
[[nodiscard]] Pipe make_socket_pair();

/// A second descriptor for the same file, at 3 or above, that closes on exec. Throws LaunchError
/// (71).
[[nodiscard]] UniqueFd duplicate(int fd);

/// /dev/null for reading and writing. Throws LaunchError (71).
[[nodiscard]] UniqueFd open_null();

/// Ready to read when the child `pid`, not yet waited for, is over. Throws LaunchError (71).
[[nodiscard]] UniqueFd open_pidfd(int pid);

/// Raises the soft limit on open descriptors, which the streams of many ranks or hosts exceed, to
/// the hard one. Before any thread is started; later calls do nothing.
void raise_descriptor_limit() noexcept;

/// Sets the soft limit that was there before it was raised, for a child between fork and exec:
/// programs that use select() fail under a high limit. Does nothing in a process that never raised
/// it. Async-signal-safe.
void restore_descriptor_limit() noexcept;

/// Opens /dev/null in place of 0, 1 and 2 where they are closed, so that no other file gets there.
void fill_standard_descriptors();

}  // namespace hvd::launcher
