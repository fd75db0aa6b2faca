// Starts the library's threads.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <pthread.h>

#include <hvd/core/error.hpp>

namespace hvd::detail {

/// Starts a thread that runs `body`. Debuggers and `top` show its name, of at most 15 bytes. Throws
/// Error with Errc::resource when the system starts no more threads.
template <typename Body>
[[nodiscard]] std::thread start_thread(const char* name, Body body) {
  try {
    std::thread thread(std::move(body));
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    throw Error(Errc::resource, fmt::format("cannot start the thread {}: {}", name, error.what()));
  }
}

}  // namespace hvd::detail
