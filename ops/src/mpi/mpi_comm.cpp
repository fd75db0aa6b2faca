#include "mpi/mpi_comm.hpp"

#include <memory>

#include "group/subset.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_exchange.hpp"
#include "mpi/mpi_process.hpp"

namespace hvd {
namespace {

/// Dissemination barrier (Hensgen, Finkel & Manber 1988) of some ranks.
void meet(const MpiComm& comm, std::span<const int> ranks, Watch& watch) {
  const auto size = ranks.size();
  const auto me = static_cast<std::size_t>(rank_in_subset(ranks, comm.rank(), comm.size()));
  const std::byte token{1};
  std::byte received{};
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    exchange_pieces(comm,
                    {.to = ranks[(me + distance) % size],
                     .out = {&token, 1},
                     .from = ranks[(me + size - distance) % size],
                     .in = {&received, 1}},
                    1, watch);
  }
}

/// Owned while it is in use.
struct Group {
  Group() = default;
  ~Group() {
    if (handle != MPI_GROUP_NULL) MPI_Group_free(&handle);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  MPI_Group handle = MPI_GROUP_NULL;
};

}  // namespace

MpiComm::MpiComm(MPI_Comm parent, Watch& watch) {
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(parent, copy.get(), &request), "MPI_Comm_idup", watch);
  try {
    complete(request, "MPI_Comm_idup", watch);
  } catch (...) {
    static_cast<void>(copy.release());  // MPI writes it when the others come after all
    throw;
  }
  comm_ = *copy;
  set_up(watch);
}

MpiComm::MpiComm(const MpiComm& parent, std::span<const int> ranks, Watch& watch) {
  meet(parent, ranks, watch);
  Group all;
  Group members;
  check_mpi(MPI_Comm_group(parent.get(), &all.handle), "MPI_Comm_group", watch);
  check_mpi(
      MPI_Group_incl(all.handle, static_cast<int>(ranks.size()), ranks.data(), &members.handle),
      "MPI_Group_incl", watch);
  check_mpi(MPI_Comm_create_group(parent.get(), members.handle, kSubsetTag, &comm_),
            "MPI_Comm_create_group", watch);
  set_up(watch);
}

void MpiComm::set_up(const Watch& watch) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler", watch);
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank", watch);
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size", watch);
}

MpiComm::~MpiComm() {
  if (comm_ != MPI_COMM_NULL && MpiUse::alive()) MPI_Comm_free(&comm_);
}

void complete(MPI_Request request, std::string_view call, Watch& watch) {
  for (;;) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), call, watch);
    if (done != 0) return;
    watch.pause();
  }
}

}  // namespace hvd
