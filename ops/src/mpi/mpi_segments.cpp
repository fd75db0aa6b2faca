#include "mpi/mpi_segments.hpp"

#include <algorithm>

#include "mpi/mpi_error.hpp"

namespace hvd {

MpiSegments::Segment MpiSegments::at(std::size_t index) const noexcept {
  const std::size_t offset = index * longest_;
  return {.offset = offset, .size = std::min(longest_, size_ - offset), .slot = index % kWindow};
}

std::optional<MpiSegments::Segment> MpiSegments::take_finished(std::string_view call,
                                                               const Watch& watch) {
  if (finished_ == begun_) return std::nullopt;
  const Segment oldest = at(finished_);
  int complete = 0;
  check_mpi(MPI_Test(request(oldest.slot), &complete, MPI_STATUS_IGNORE), call, watch);
  if (complete == 0) return std::nullopt;
  ++finished_;
  return oldest;
}

}  // namespace hvd
