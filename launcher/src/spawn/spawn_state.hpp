// Encodes the messages between a process of hvd::spawn and its parent, which are the calls that led
// to the process, and its report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hvd/core/error.hpp>
#include <hvd/core/internal/fd.hpp>
#include <hvd/core/internal/wire.hpp>
#include <hvd/spawn.hpp>

namespace hvd::launcher {

/// The outcome of a call. Processes of later calls run the program again and get the outcome when
/// they reach this call.
struct SpawnOutcome {
  enum class Kind : std::uint8_t { open, results, process_error, error };
  Kind kind = Kind::open;  ///< open: the call has not been joined yet
  std::vector<Bytes> results{};
  ProcessError::End end{};
  Errc code = Errc::internal;  ///< the code of an error that no process reported
  std::string text{};
  std::vector<pid_t> pids{};
};

/// One call on the way from `main`, or from the function of the call above, to a process.
struct SpawnLevel {
  std::uint32_t call = 0;  ///< the number of calls before it on this level
  std::int32_t rank = 0;   ///< the rank of the process in this call
  std::string file{};      ///< the call's source file, and then its line
  std::int32_t line = 0;
  std::vector<SpawnOutcome> earlier{};  ///< the outcomes of the calls before it
};
using SpawnPath = std::vector<SpawnLevel>;

[[nodiscard]] Bytes encode(const SpawnPath& path);
/// Throws Errc::protocol when the bytes are malformed.
[[nodiscard]] SpawnPath decode_spawn_path(std::span<const std::byte> bytes);

/// The report of a process to its parent, in a file that both have open.
struct SpawnReport {
  enum class Stage : std::uint8_t { before, running, returned, threw };
  Stage stage = Stage::before;  ///< before: it has not reached its call
  Bytes value{};                ///< what its function returned
  std::string text{};           ///< what it threw
};

/// Returns an anonymous file in memory that closes on exec, with `content`. Throws Errc::resource.
[[nodiscard]] UniqueFd make_memory_file(const char* name, std::span<const std::byte> content);
/// Throws Errc::resource when it cannot read the file.
[[nodiscard]] Bytes read_memory_file(int fd);

/// Replaces the content of the file. Throws Errc::resource.
void write_report(int fd, SpawnReport::Stage stage, std::span<const std::byte> payload);
[[nodiscard]] SpawnReport read_report(int fd);

}  // namespace hvd::launcher
