// Is preloaded into a job. One rank, which HVD_RANK and OUTSIDE_LIAR name, changes a bit of one
// message: "2:40:17" is bit 17 of the 40th message that rank 2 sends over a stream socket. It holds
// the secret and has passed all handshakes, so it is a member of the job that lies.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <dlfcn.h>
#include <sys/socket.h>

namespace {

struct Lie {
  int rank = -1;
  long message = -1;
  std::size_t bit = 0;
};

Lie make_lie() {
  Lie lie;
  const char* const text = std::getenv("OUTSIDE_LIAR");
  const char* const rank = std::getenv("HVD_RANK");
  if (text == nullptr || rank == nullptr) return {};
  if (std::sscanf(text, "%d:%ld:%zu", &lie.rank, &lie.message, &lie.bit) != 3) return {};
  return lie.rank == std::atoi(rank) ? lie : Lie{};
}

const Lie lie = make_lie();

bool is_stream(int fd) {
  int type = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

/// Tells whether this is the message to change.
bool is_it(int fd, std::size_t size) {
  static std::atomic<long> messages{0};
  return lie.rank >= 0 && size > 0 && is_stream(fd) && messages.fetch_add(1) == lie.message;
}

}  // namespace

extern "C" ssize_t send(int fd, const void* data, std::size_t size, int flags) {
  using Send = ssize_t(int, const void*, std::size_t, int);
  static auto* const next = reinterpret_cast<Send*>(::dlsym(RTLD_NEXT, "send"));
  if (!is_it(fd, size)) return next(fd, data, size, flags);
  std::vector<unsigned char> bytes(size);
  std::memcpy(bytes.data(), data, size);
  const std::size_t bit = lie.bit % (8 * size);
  bytes[bit / 8] ^= static_cast<unsigned char>(1U << bit % 8);
  std::fputs("the liar lies\n", stderr);
  return next(fd, bytes.data(), size, flags);
}
