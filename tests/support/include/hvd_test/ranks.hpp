// Ranks as threads of the test: one per rank, around one hash store.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <hvd/core/config.hpp>
#include <hvd/core/store.hpp>

namespace hvd::test {

/// What rank `rank` of `size` threads would find in its environment.
inline Config thread_config(int rank, int size) {
  Config config;
  config.rank = rank;
  config.size = size;
  config.start_timeout = std::chrono::seconds(30);
  config.collective_timeout = std::chrono::seconds(30);
  config.shutdown_timeout = std::chrono::seconds(30);
  // Sanitizers and a loaded machine make every thread late; tests of failure set their own.
  config.peer_timeout = std::chrono::seconds(20);
  return config;
}

/// Runs `body(rank)` on `size` threads and returns what each threw, null where nothing.
inline std::vector<std::exception_ptr> run_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// As `run_threads`, and a rank that throws fails the test.
inline void expect_threads(int size, const std::function<void(int)>& body) {
  const auto errors = run_threads(size, body);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank]) continue;
    try {
      std::rethrow_exception(errors[rank]);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    }
  }
}

}  // namespace hvd::test
