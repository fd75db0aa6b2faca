#include "transport/failure.hpp"

#include <utility>

namespace hvd::detail {
namespace {

Error about(Errc code, int peer, std::string cause) {
  Fault fault;
  fault.rank = peer;
  fault.cause = std::move(cause);
  return Error(code, std::move(fault));
}

}  // namespace

Error peer_lost(int peer, std::string cause) {
  return about(Errc::peer_lost, peer, std::move(cause));
}

Error peer_timeout(int peer, std::string cause) {
  return about(Errc::timeout, peer, std::move(cause));
}

Error peer_violation(int peer, std::string cause) {
  return about(Errc::protocol, peer, std::move(cause));
}

void Failure::check() const {
  if (aborted()) throw Error(Errc::aborted, "aborted");
}

}  // namespace hvd::detail
