// Receives what another rank of the host sends instead of descriptors, or with a wrong number of
// them: an error, which ends the exchange, or anything. The first byte of the input chooses how
// many descriptors arrive.
#include <array>

#include <fcntl.h>
#include <sys/socket.h>

#include "check.hpp"
#include "shm/descriptors.hpp"

using namespace hvd;
using fuzz::check;

namespace {

/// Returns a number that is larger while more descriptors are open.
int lowest_free() { return UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)).get(); }

void receive(std::size_t count, std::span<const std::byte> bytes) {
  constexpr int kPeer = 1;
  constexpr std::size_t kWanted = 2;
  std::array<int, 2> ends{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const UniqueFd near(ends[0]);
  UniqueFd far(ends[1]);
  const Deadline now = Clock::now();
  constexpr std::array<int, 3> passed{STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};
  detail::send_descriptors(far.get(), std::span(passed).first(count), kPeer, now);
  const ssize_t sent = ::send(far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  check(sent == static_cast<ssize_t>(bytes.size()));
  far.reset();
  try {
    check(detail::receive_descriptors(near.get(), kWanted, kPeer, now).size() == kWanted);
    check(count == kWanted);
  } catch (const Error& error) {
    check(count != kWanted && error.code() <= Errc::internal);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0 || size > 1 << 14) return 0;  // a socket holds it
  const int free = lowest_free();
  receive(data[0] % 4, fuzz::input(data, size).subspan(1));
  check(lowest_free() == free);  // also descriptors that were refused are closed
  return 0;
}
