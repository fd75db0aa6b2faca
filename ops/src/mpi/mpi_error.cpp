#include "mpi/mpi_error.hpp"

#include <array>
#include <utility>

#include <fmt/format.h>
#include <mpi.h>

#include <hvd/core/error.hpp>

namespace hvd {
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

}  // namespace hvd
