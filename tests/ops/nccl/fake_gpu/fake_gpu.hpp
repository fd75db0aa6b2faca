// A CUDA runtime and an NCCL that compute on host memory: the subset that the NCCL backend uses,
// linked in their place. Devices are numbers, ranks are threads, streams are worker threads.
//
// It is as late as a GPU is allowed to be: a stream runs nothing until somebody asks about it, a
// non-blocking NCCL call takes effect only after it has been polled, fresh memory holds garbage. So
// a wait left out gives a wrong result every time, not once in a while. Misuse is written down.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nccl.h>

namespace hvd::test::fake_gpu {

/// Forgets everything and starts with that many devices. Between tests, when no rank is running.
void reset(int device_count);

/// The devices on which a context was made, by all ranks: some hundred MB each on a real one.
[[nodiscard]] std::set<int> contexts();

/// What was used as its documentation forbids, one line each.
[[nodiscard]] std::vector<std::string> violations();
/// Memory, streams, events, communicators and reduce operations not given back and groups of calls
/// not ended, one line each.
[[nodiscard]] std::vector<std::string> leaks();

/// The collectives of this rank never start, so that nobody's complete, until abort or reset.
void hang(int rank);
/// As `hang`, and the next poll of this rank's communicator reports `error`.
void fail(int rank, ncclResult_t error);

/// NCCL collectives that have run to their end, over all ranks.
[[nodiscard]] int collectives_run();

/// How often a function of the two libraries was called since `reset`, by all ranks; of those that
/// the fake notes down (grep for `note`).
[[nodiscard]] int calls(std::string_view function);

// Shared by the fake's own files.
void violate(std::string what);
void note(std::string_view function);

}  // namespace hvd::test::fake_gpu
