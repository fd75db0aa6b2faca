// The fake NCCL: the functions of libnccl that the NCCL backend calls, on top of `Clique`.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_gpu/clique.hpp"
#include "fake_gpu/device_memory.hpp"
#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime.hpp"

using hvd::test::fake_gpu::Call;
using hvd::test::fake_gpu::Clique;
using hvd::test::fake_gpu::device_memory;
using hvd::test::fake_gpu::note;
using hvd::test::fake_gpu::Reduction;
using hvd::test::fake_gpu::Stream;
using hvd::test::fake_gpu::Ticket;
using hvd::test::fake_gpu::used_device;
using hvd::test::fake_gpu::violate;

namespace {

// Longer than any wait that is not a hang.
constexpr std::chrono::seconds kPatience{8};

struct Launch {
  Call call;
  std::shared_ptr<Stream> stream;
};

struct Fault {
  bool hang = false;
  ncclResult_t error = ncclSuccess;
};

struct Memory {
  const std::byte* data = nullptr;
  std::size_t size = 0;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  int device = 0;
  bool ready = false;  ///< a poll has reported that all have joined
  int polls = 0;       ///< since the last call
  bool finalizing = false;
  bool failed = false;         ///< a meeting went wrong
  std::vector<Launch> queued;  ///< launches that are not yet in a stream
  std::map<int, std::pair<ncclDataType_t, double>> operations;
  std::map<const void*, Memory> registered;  ///< by handle
  std::shared_ptr<Stream> stream;            ///< of the last launch
  Ticket launched = 0;                       ///< in it
};

constexpr std::size_t kLargestAllocation = std::size_t{1} << 40;  // no GPU has more memory

constexpr int kUsualVersion = 22'800;
constexpr int kVersionThatShares = 23'000;

struct Library {
  std::mutex mutex;
  std::condition_variable changed;
  std::uintptr_t next = 0x100;
  std::uint64_t next_id = 1;
  std::map<std::uint64_t, std::weak_ptr<Clique>> cliques;
  std::map<const void*, std::shared_ptr<Comm>> comms;
  std::map<int, Fault> faults;
  int collectives = 0;
  int open_groups = 0;
  int version = kUsualVersion;
};

Library& library() {
  static Library state;
  return state;
}

/// The calls of this thread since ncclGroupStart.
struct Group {
  int depth = 0;
  std::vector<std::pair<std::shared_ptr<Comm>, Launch>> calls;
};

Group& group() {
  thread_local Group state;
  return state;
}

// All of these except the two that enqueue hold the library's mutex.

std::shared_ptr<Comm> find(ncclComm_t handle, const char* call) {
  const auto found = library().comms.find(handle);
  if (found != library().comms.end()) return found->second;
  violate(std::string(call) + " on a communicator that was destroyed or aborted");
  return nullptr;
}

ncclResult_t invalid(const std::string& what) {
  violate(what);
  return ncclInvalidArgument;
}

bool is_broken(int device) { return hvd::test::fake_gpu::runtime().is_broken(device); }

bool is_registered(const Comm& comm, const void* data) {
  const auto* const byte = static_cast<const std::byte*>(data);
  return std::any_of(comm.registered.begin(), comm.registered.end(), [&](const auto& each) {
    const Memory& memory = each.second;
    return byte >= memory.data && byte < memory.data + memory.size;
  });
}

bool busy(const Comm& comm) { return !comm.ready || !comm.queued.empty() || comm.finalizing; }

/// Tells whether all ranks have come to the queued calls. NCCL connects them in the first
/// collective of a kind, which takes effect only then. Messages connect two ranks, which the fake
/// leaves out.
bool are_connected(const Comm& comm) {
  bool all = true;
  for (const Launch& launch : comm.queued) {
    if (launch.call.is_message()) continue;
    if (comm.clique->connect(comm.rank, launch.call.kind)) continue;
    all = false;
    // The thread that polls may hold up all others that would ask about the stream, and another
    // rank may have to wait for earlier work in it.
    static_cast<void>(launch.stream->query(launch.stream->tail()));
  }
  return all;
}

/// Tells whether a kernel of NCCL is queued on the device. Whoever allocates memory there may have
/// to wait for it.
bool waits_for_peers(int device) {
  const auto& comms = library().comms;
  return std::any_of(comms.begin(), comms.end(), [&](const auto& each) {
    const Comm& comm = *each.second;
    return comm.device == device && comm.stream && !comm.stream->has_run(comm.launched);
  });
}

void run(const std::shared_ptr<Comm>& comm, const Call& call) {
  Library& lib = library();
  std::unique_lock lock(lib.mutex);
  const auto gone = [&] {
    for (const auto& [handle, known] : lib.comms) {
      if (known == comm) return false;
    }
    return true;
  };
  lib.changed.wait(lock, [&] { return !lib.faults[comm->rank].hang || gone(); });
  if (gone()) return;
  lock.unlock();
  const bool done = call.is_message() ? comm->clique->pass(comm->rank, call)
                                      : comm->clique->meet(comm->rank, call);
  lock.lock();
  if (done) ++lib.collectives;
  comm->failed = comm->failed || !done;
}

ncclResult_t enqueue(ncclComm_t handle, const char* name, const Call& call, cudaStream_t stream) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const std::shared_ptr<Comm> comm = find(handle, name);
  if (!comm) return ncclInvalidArgument;
  if (busy(*comm)) return invalid(std::string(name) + " before the last call has settled");
  const std::shared_ptr<Stream> line = hvd::test::fake_gpu::runtime().stream(stream);
  if (!line || line->device() != comm->device) {
    return invalid(std::string(name) + " on a stream of another device");
  }
  if (is_broken(comm->device)) return ncclUnhandledCudaError;
  const std::size_t bytes = call.count * hvd::test::fake_gpu::size_of(call.type);
  const auto& memory = hvd::test::fake_gpu::device_memory();
  const auto is = [&](Call::Kind kind) { return call.kind == kind; };
  const bool root = call.root == comm->rank;
  const bool reads = !is(Call::Kind::receive) && (root || !is(Call::Kind::broadcast));
  const bool writes = !is(Call::Kind::send) && (root || !is(Call::Kind::reduce));
  const auto ranks = static_cast<std::size_t>(comm->clique->size());
  const std::size_t read = is(Call::Kind::reduce_scatter) ? bytes * ranks : bytes;
  const std::size_t written = is(Call::Kind::allgather) ? bytes * ranks : bytes;
  if (call.is_message() && (root || call.root < 0 || call.root >= comm->clique->size())) {
    return invalid(std::string(name) + " to or from a rank that is no other's");
  }
  if ((writes && !memory.contains(call.dst, written, comm->device)) ||
      (reads && !memory.contains(call.src, read, comm->device))) {
    return invalid(std::string(name) + " outside the memory of the communicator's device");
  }
  Launch launch{call, line};
  // A rank passes only one of the two buffers to a reduce or a broadcast.
  launch.call.registered = is_registered(*comm, is(Call::Kind::reduce) ? call.src : call.dst) ||
                           (!is(Call::Kind::broadcast) && is_registered(*comm, call.src));
  if (group().depth > 0) {
    group().calls.emplace_back(comm, std::move(launch));
    return ncclSuccess;
  }
  comm->queued.push_back(std::move(launch));
  comm->polls = 0;
  return ncclInProgress;
}

/// Uses an operation of NCCL, or one that was created for this communicator and type.
ncclResult_t enqueue_reduction(ncclComm_t handle, const char* name, Call call, ncclRedOp_t op,
                               cudaStream_t stream) {
  call.reduction.op = op;
  const bool is_created = static_cast<int>(op) >= static_cast<int>(ncclNumOps);
  if (is_created || op == ncclAvg) {
    const std::lock_guard lock(library().mutex);
    const std::shared_ptr<Comm> comm = find(handle, name);
    if (!comm) return ncclInvalidArgument;
    // For one rank NCCL copies at most, unless the operation multiplies.
    if (comm->clique->size() == 1) note("a kernel for one rank");
    if (is_created) {
      const auto found = comm->operations.find(static_cast<int>(op));
      if (found == comm->operations.end() || found->second.first != call.type) {
        return invalid("a reduce operation of another communicator or type");
      }
      call.reduction = {ncclSum, found->second.second};
    }
  }
  return enqueue(handle, name, call, stream);
}

void give_up(ncclComm_t handle, Library& lib) {
  const auto found = lib.comms.find(handle);
  const Comm& comm = *found->second;
  comm.clique->abort(comm.rank);
  lib.comms.erase(found);
  lib.changed.notify_all();
}

}  // namespace

namespace hvd::test::fake_gpu {

void reset_nccl() {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  for (const auto& [handle, comm] : lib.comms) comm->clique->abort(comm->rank);
  lib.comms.clear();
  lib.cliques.clear();
  lib.faults.clear();
  lib.collectives = 0;
  lib.open_groups = 0;
  lib.version = kUsualVersion;
  lib.changed.notify_all();
}

bool complete_collectives(int device) {
  std::vector<std::pair<std::shared_ptr<Stream>, Ticket>> launched;
  {
    const std::lock_guard lock(library().mutex);
    for (const auto& [handle, comm] : library().comms) {
      if (comm->device == device && comm->stream) {
        launched.emplace_back(comm->stream, comm->launched);
      }
    }
  }
  return std::all_of(launched.begin(), launched.end(), [](const auto& last) {
    return last.first->synchronize_for(last.second, kPatience);
  });
}

std::vector<std::string> nccl_leaks() {
  const std::lock_guard lock(library().mutex);
  std::vector<std::string> lines;
  const int groups = library().open_groups;
  if (groups > 0) lines.push_back(std::to_string(groups) + " groups that were not ended");
  for (const auto& [handle, comm] : library().comms) {
    lines.push_back("communicator of rank " + std::to_string(comm->rank));
    for (const auto& operation : comm->operations) {
      lines.push_back("reduce operation " + std::to_string(operation.first));
    }
    for (std::size_t i = 0; i < comm->registered.size(); ++i) lines.push_back("registration");
  }
  return lines;
}

void hang(int rank) {
  const std::lock_guard lock(library().mutex);
  library().faults[rank].hang = true;
}

void fail(int rank, ncclResult_t error) {
  const std::lock_guard lock(library().mutex);
  library().faults[rank] = {true, error};
}

int collectives_run() {
  const std::lock_guard lock(library().mutex);
  return library().collectives;
}

void let_ranks_share() {
  const std::lock_guard lock(library().mutex);
  library().version = kVersionThatShares;
}

}  // namespace hvd::test::fake_gpu

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(library().mutex);
  *version = library().version;
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "an error of the fake NCCL";
}

const char* ncclGetLastError(ncclComm_t) { return "as the test asked"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(library().mutex);
  std::memset(id, 0, sizeof *id);
  const std::uint64_t number = library().next_id++;
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  note("ncclCommInitRankConfig");
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  if (config == nullptr || config->blocking != 0) return invalid("the fake is non-blocking only");
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  std::shared_ptr<Clique> clique = lib.cliques[number].lock();
  if (!clique) {
    clique = std::make_shared<Clique>(size);
    lib.cliques[number] = clique;
  }
  const int device = hvd::test::fake_gpu::current_device();
  if (waits_for_peers(device)) violate("NCCL starts behind a kernel that may wait for a lost rank");
  if (clique->size() != size || !clique->join(rank, device)) {
    *comm = nullptr;
    return ncclInvalidUsage;  // "Duplicate GPU detected"
  }
  auto state = std::make_shared<Comm>();
  state->clique = std::move(clique);
  state->rank = rank;
  state->device = device;
  *comm = reinterpret_cast<ncclComm_t>(lib.next += 16);
  lib.comms.emplace(*comm, std::move(state));
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* state) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclCommGetAsyncError");
  if (!comm) return ncclInvalidArgument;
  const ncclResult_t injected = lib.faults[comm->rank].error;
  *state = ncclInProgress;
  if (injected != ncclSuccess || comm->failed) {
    *state = injected != ncclSuccess ? injected : ncclInternalError;
  } else if (!comm->ready) {
    if (comm->clique->complete() && ++comm->polls > 1) comm->ready = true;
    if (comm->ready) *state = ncclSuccess;
  } else if (comm->finalizing) {
    if (comm->clique->leave(comm->rank)) *state = ncclSuccess;
  } else if (comm->queued.empty()) {
    *state = ncclSuccess;
  } else if (++comm->polls > 1 && are_connected(*comm)) {
    for (const Launch& launch : comm->queued) {
      comm->launched = launch.stream->push([comm, call = launch.call] { run(comm, call); });
      comm->stream = launch.stream;
    }
    comm->queued.clear();
    *state = ncclSuccess;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  const std::lock_guard lock(library().mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclCommFinalize");
  if (!comm) return ncclInvalidArgument;
  if (busy(*comm)) return invalid("ncclCommFinalize before the last call has settled");
  if (is_broken(comm->device)) return ncclUnhandledCudaError;
  comm->finalizing = true;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclCommDestroy");
  if (!comm) return ncclInvalidArgument;
  if (!comm->finalizing) violate("ncclCommDestroy of a communicator that was not finalized");
  if (!comm->operations.empty()) violate("ncclCommDestroy with reduce operations left");
  if (!comm->registered.empty()) violate("ncclCommDestroy with registrations left");
  lib.comms.erase(handle);
  lib.changed.notify_all();
  return ncclSuccess;
}

// Its own work ends at once, but the call returns only when that work had its turn in the stream,
// after everything before it.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  note("ncclCommAbort");
  std::shared_ptr<Comm> comm;
  {
    const std::lock_guard lock(library().mutex);
    comm = find(handle, "ncclCommAbort");
    if (!comm) return ncclInvalidArgument;
    give_up(handle, library());
  }
  if (comm->stream && !comm->stream->synchronize_for(comm->launched, kPatience)) {
    violate("ncclCommAbort waits for what nobody ends");
  }
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, std::size_t size) {
  note("ncclMemAlloc");
  if (is_broken(used_device())) return ncclUnhandledCudaError;
  {
    const std::lock_guard lock(library().mutex);
    if (waits_for_peers(used_device())) {
      violate("ncclMemAlloc behind a kernel that may wait for a lost rank");
    }
  }
  // NCCL takes the error of CUDA away.
  if (size > kLargestAllocation) return ncclUnhandledCudaError;
  *data = device_memory().allocate(size, used_device());
  return ncclSuccess;
}

ncclResult_t ncclMemFree(void* data) {
  const std::lock_guard lock(library().mutex);
  for (const auto& [handle, comm] : library().comms) {
    for (const auto& [registration, memory] : comm->registered) {
      if (memory.data == data) violate("ncclMemFree of memory that is registered");
    }
  }
  if (device_memory().release(data) < 0) return invalid("ncclMemFree of a pointer nobody gave");
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t handle, void* data, std::size_t size, void** key) {
  note("ncclCommRegister");
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclCommRegister");
  if (!comm) return ncclInvalidArgument;
  if (!device_memory().contains(data, size, comm->device)) {
    return invalid("ncclCommRegister of memory that is not the device's");
  }
  *key = reinterpret_cast<void*>(lib.next += 16);
  comm->registered.emplace(*key, Memory{static_cast<const std::byte*>(data), size});
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t handle, void* key) {
  note("ncclCommDeregister");
  const std::lock_guard lock(library().mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclCommDeregister");
  if (!comm) return ncclInvalidArgument;
  if (comm->registered.erase(key) == 0) return invalid("ncclCommDeregister of no registration");
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t handle) {
  Library& lib = library();
  const std::lock_guard lock(lib.mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclRedOpCreatePreMulSum");
  if (!comm) return ncclInvalidArgument;
  if (residence != ncclScalarHostImmediate) return invalid("the fake reads host scalars only");
  if (type != ncclFloat16 && type != ncclBfloat16 && type != ncclFloat32 && type != ncclFloat64) {
    return invalid("a premultiplied sum of integers");
  }
  *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) + static_cast<int>(++lib.next));
  comm->operations[static_cast<int>(*op)] = {type, hvd::test::fake_gpu::to_double(scalar, type)};
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t handle) {
  const std::lock_guard lock(library().mutex);
  const std::shared_ptr<Comm> comm = find(handle, "ncclRedOpDestroy");
  if (!comm) return ncclInvalidArgument;
  if (comm->operations.erase(static_cast<int>(op)) == 0) return invalid("ncclRedOpDestroy twice");
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* src, void* dst, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream) {
  return enqueue_reduction(handle, "ncclAllReduce",
                           Call{Call::Kind::allreduce, src, dst, count, type, {}, 0}, op, stream);
}

ncclResult_t ncclReduce(const void* src, void* dst, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t handle, cudaStream_t stream) {
  return enqueue_reduction(handle, "ncclReduce",
                           Call{Call::Kind::reduce, src, dst, count, type, {}, root}, op, stream);
}

ncclResult_t ncclReduceScatter(const void* src, void* dst, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t handle, cudaStream_t stream) {
  return enqueue_reduction(handle, "ncclReduceScatter",
                           Call{Call::Kind::reduce_scatter, src, dst, count, type, {}, 0}, op,
                           stream);
}

ncclResult_t ncclAllGather(const void* src, void* dst, std::size_t count, ncclDataType_t type,
                           ncclComm_t handle, cudaStream_t stream) {
  return enqueue(handle, "ncclAllGather", Call{Call::Kind::allgather, src, dst, count, type, {}, 0},
                 stream);
}

ncclResult_t ncclSend(const void* src, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  return enqueue(handle, "ncclSend", Call{Call::Kind::send, src, nullptr, count, type, {}, peer},
                 stream);
}

ncclResult_t ncclRecv(void* dst, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t handle, cudaStream_t stream) {
  return enqueue(handle, "ncclRecv", Call{Call::Kind::receive, nullptr, dst, count, type, {}, peer},
                 stream);
}

ncclResult_t ncclBroadcast(const void* src, void* dst, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t handle, cudaStream_t stream) {
  return enqueue(handle, "ncclBroadcast",
                 Call{Call::Kind::broadcast, src, dst, count, type, {}, root}, stream);
}

ncclResult_t ncclGroupStart() {
  const std::lock_guard lock(library().mutex);
  if (++group().depth == 1) ++library().open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Group& mine = group();
  const std::lock_guard lock(library().mutex);
  if (mine.depth == 0) return invalid("ncclGroupEnd without a group");
  if (--mine.depth > 0) return ncclSuccess;
  --library().open_groups;
  for (auto& [comm, launch] : mine.calls) {
    comm->queued.push_back(std::move(launch));
    comm->polls = 0;
  }
  const bool any = !mine.calls.empty();
  if (any) note("ncclGroupEnd");
  mine.calls.clear();
  return any ? ncclInProgress : ncclSuccess;
}

}  // extern "C"
