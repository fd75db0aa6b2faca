#include "mpi/agreement.hpp"

#include <fmt/format.h>

#include <hvd/core/log.hpp>
#include <hvd/core/session.hpp>

namespace hvd {
namespace {

std::string as_text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

bool all_can_use_mpi(Session& session, const std::string& trouble) {
  constexpr std::string_view kVerdict = "plan/mpi";
  const auto key = [](int rank) { return fmt::format("plan/mpi/{}", rank); };
  const Topology& topology = session.topology();
  const Deadline deadline = session.start_deadline();
  Store& store = session.store();
  if (topology.rank != 0) {
    store.set(key(topology.rank), std::as_bytes(std::span(trouble)), deadline);
    return store.wait(kVerdict, deadline).empty();
  }
  std::string verdict = trouble;
  int rank = 0;
  for (int other = 1; other < topology.size; ++other) {
    const std::string theirs = as_text(store.wait(key(other), deadline));
    if (!verdict.empty() || theirs.empty()) continue;
    verdict = theirs;
    rank = other;
  }
  store.set(kVerdict, std::as_bytes(std::span(verdict)), deadline);
  if (verdict.empty()) return true;
  log(LogLevel::warn, 0,
      fmt::format("HVD_BACKEND=mpi, but rank {} cannot use MPI: {}; using the native transport",
                  rank, verdict));
  return false;
}

}  // namespace hvd
