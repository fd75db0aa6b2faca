// A CUDA runtime and an NCCL that compute on host memory: the subset that the NCCL backend uses,
// linked in their place. Devices are numbers, ranks are threads, streams are worker threads.
//
// It is as late as a GPU is allowed to be: a stream runs nothing until somebody asks about it, a
// non-blocking NCCL call takes effect only after it has been polled (a communicator's first
// collective of a kind only after all ranks have polled theirs), fresh memory holds garbage. So a
// wait left out gives a wrong result every time, not once in a while. Misuse is written down.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

namespace hvd::test::fake_gpu {

/// Resets the fake to that many devices. Call it between tests, when no rank is running.
void reset(int device_count);

/// Returns the devices on which some rank has made a context, which takes some hundred MB each on a
/// real one.
[[nodiscard]] std::set<int> contexts();

/// Returns one line for each use that the documentation of CUDA or NCCL forbids.
[[nodiscard]] std::vector<std::string> violations();
/// Returns one line for each resource that was not released: memory, streams, events,
/// communicators, reduce operations and groups of calls. Waits up to 20 s for what a thread
/// in the background still releases, such as a stream that stood still.
[[nodiscard]] std::vector<std::string> leaks();

/// Collectives of this rank never start, so no rank's complete, until an abort or a reset.
void hang(int rank);
/// Does the same, and the next poll of this rank's communicator reports `error`.
void fail(int rank, ncclResult_t error);

/// Lets a kernel of the program fail on a device, as one that reads outside its memory does. From
/// then on nothing runs there, and every call that needs the device's context returns the same
/// error, until the reset.
void break_device(int device);

/// Until the reset nobody can count the devices.
void refuse_count(cudaError_t error);

/// Until the reset the copy kernel has no code for a device.
void lack_code(int device);

/// Until the reset NCCL has version 2.30, which can let ranks share a device.
void let_ranks_share();

/// Begins or ends the capture of a graph on a thread of the process that makes no other call. It
/// has the default mode, which forbids queries and allocations to all threads that have not changed
/// their own mode.
void capture_elsewhere(bool begins);

/// Begins or ends the capture of a graph on a stream. The fake runs the work in it all the same.
void capture(const void* stream, bool begins);

/// Returns the number of NCCL collectives that have completed, over all ranks.
[[nodiscard]] int collectives_run();

/// Returns how often all ranks have called a function of the two libraries since `reset`. The fake
/// counts only functions with a `note`.
[[nodiscard]] int calls(std::string_view function);

/// The next call of a function that the fake counts calls `then` first, on the same thread.
void on_next(std::string_view function, std::function<void()> then);

/// Returns the bytes that all ranks have queued for copying from one place of device memory to
/// another since `reset`.
[[nodiscard]] std::size_t copied_bytes();

// Used by the fake's own files.
void violate(std::string what);
void note(std::string_view function);
void note_copy(const void* dst, const void* src, std::size_t size);

}  // namespace hvd::test::fake_gpu
