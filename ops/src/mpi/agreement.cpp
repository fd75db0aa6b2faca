#include "mpi/agreement.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include <hvd/core/log.hpp>

namespace hvd::detail {

bool all_can_use_mpi(const Session& session, const std::string& trouble) {
  const std::string answer =
      session.bootstrap().decide("mpi", trouble, [](const std::vector<std::string>& troubles) {
        const auto found = std::find_if(troubles.begin(), troubles.end(),
                                        [](const std::string& one) { return !one.empty(); });
        if (found == troubles.end()) return std::string();
        log(LogLevel::warn, 0,
            fmt::format(
                "HVD_BACKEND=mpi, but rank {} cannot use MPI: {}; using the native transport",
                found - troubles.begin(), *found));
        return *found;
      });
  return answer.empty();
}

}  // namespace hvd::detail
