// The NCCL backend of a session.
#include <cstring>
#include <span>

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>
#include <hvd/ops/backends.hpp>

#include "nccl/gpu_choice.hpp"
#include "nccl/nccl_backend.hpp"

namespace hvd {
namespace {

/// Rank 0 makes it, the store carries it.
ncclUniqueId agree_on_id(Session& session) {
  constexpr std::string_view kKey = "nccl/unique_id";
  ncclUniqueId id{};
  if (session.topology().rank == 0) {
    const ncclResult_t result = ncclGetUniqueId(&id);
    if (result != ncclSuccess) {
      throw Error(Errc::internal, fmt::format("ncclGetUniqueId: {}", ncclGetErrorString(result)));
    }
    session.store().set(kKey, std::as_bytes(std::span(id.internal)), session.start_deadline());
    return id;
  }
  const Bytes value = session.store().wait(kKey, session.start_deadline());
  if (value.size() != sizeof id.internal) {
    throw Error(Errc::protocol, fmt::format("an NCCL id of {} bytes in the store", value.size()));
  }
  std::memcpy(id.internal, value.data(), value.size());
  return id;
}

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(Session& session) {
  const std::optional<int> device = choose_gpu(session);
  if (!device) return nullptr;
  const Topology& topology = session.topology();
  const NcclPlace place{topology.rank, topology.size, *device};
  const ncclUniqueId id = agree_on_id(session);
  if (topology.rank == 0) {
    int version = 0;
    static_cast<void>(ncclGetVersion(&version));
    log(LogLevel::info, 0,
        fmt::format("NCCL {}.{}.{} on {} ranks", version / 10000, version / 100 % 100,
                    version % 100, topology.size));
  }
  return std::make_unique<NcclBackend>(place, id, session.start_deadline());
}

}  // namespace hvd
