#include "mpi/mpi_comm.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <hvd/core/error.hpp>

#include "mpi/mpi_process.hpp"
#include "transport/rank_view.hpp"

namespace hvd::detail {
namespace {

Errc code_of(int error_class) {
  switch (error_class) {
    case MPI_ERR_NO_MEM:
      return Errc::resource;
    case MPI_ERR_ARG:
    case MPI_ERR_BUFFER:
    case MPI_ERR_COMM:
    case MPI_ERR_COUNT:
    case MPI_ERR_OP:
    case MPI_ERR_ROOT:
    case MPI_ERR_TRUNCATE:
    case MPI_ERR_TYPE:
      return Errc::internal;
    default:
      return Errc::peer_lost;
  }
}

/// Runs a dissemination barrier (Hensgen, Finkel & Manber 1988) among some ranks.
void wait_for_all(const MpiComm& comm, std::span<const int> ranks, Watch& watch) {
  const auto size = ranks.size();
  const auto me = static_cast<std::size_t>(rank_in_subset(ranks, comm.rank(), comm.size()));
  struct Tokens {
    std::byte sent{1};
    std::byte received{};
  };
  auto tokens = std::make_unique<Tokens>();
  try {
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      exchange_pieces(comm,
                      {.to = ranks[(me + distance) % size],
                       .out = {&tokens->sent, 1},
                       .from = ranks[(me + size - distance) % size],
                       .in = {&tokens->received, 1}},
                      1, watch);
    }
  } catch (...) {
    static_cast<void>(tokens.release());  // MPI writes to them if the others arrive after all
    throw;
  }
}

/// Owns an MPI group.
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

void check_mpi(int result, std::string_view call, const Watch& watch) {
  if (result == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  int error_class = MPI_ERR_UNKNOWN;
  MPI_Error_string(result, text.data(), &length);
  MPI_Error_class(result, &error_class);
  Fault fault;
  fault.cause =
      fmt::format("{}: {}", call, std::string_view(text.data(), static_cast<std::size_t>(length)));
  fault.phase = watch.phase();
  fault.elapsed = watch.elapsed();
  throw Error(code_of(error_class), std::move(fault));
}

MpiComm::MpiComm(MPI_Comm parent, Watch& watch) {
  auto copy = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(parent, copy.get(), &request), "MPI_Comm_idup", watch);
  try {
    complete(request, "MPI_Comm_idup", watch);
  } catch (...) {
    static_cast<void>(copy.release());  // MPI writes to it if the others arrive after all
    throw;
  }
  comm_ = *copy;
  set_up(watch);
}

MpiComm::MpiComm(const MpiComm& parent, std::span<const int> ranks, Watch& watch) {
  wait_for_all(parent, ranks, watch);
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

void exchange_pieces(const MpiComm& comm, const MpiExchange& job, std::size_t max_piece,
                     Watch& watch) {
  const std::size_t longest = std::max(job.out.size(), job.in.size());
  for (std::size_t begin = 0; begin < longest; begin += max_piece) {
    const auto piece = [&](auto bytes) {
      const std::size_t at = std::min(begin, bytes.size());
      return bytes.subspan(at, std::min(max_piece, bytes.size() - at));
    };
    const std::span<std::byte> in = piece(job.in);
    const std::span<const std::byte> out = piece(job.out);
    MPI_Request receiving = MPI_REQUEST_NULL;
    MPI_Request sending = MPI_REQUEST_NULL;
    if (!in.empty()) {
      check_mpi(MPI_Irecv(in.data(), static_cast<int>(in.size()), MPI_BYTE, job.from, kExchangeTag,
                          comm.get(), &receiving),
                "MPI_Irecv", watch);
    }
    if (!out.empty()) {
      check_mpi(MPI_Isend(out.data(), static_cast<int>(out.size()), MPI_BYTE, job.to, kExchangeTag,
                          comm.get(), &sending),
                "MPI_Isend", watch);
    }
    complete(receiving, "MPI_Irecv", watch);
    complete(sending, "MPI_Isend", watch);
  }
}

}  // namespace hvd::detail
