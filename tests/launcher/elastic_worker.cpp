// A worker of an elastic job that only speaks with hvdrun: it makes no context. Its argument says
// whether it does what it is told, says more than it may ("floods"), or reads nothing ("deaf").
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <hvd/core/internal/elastic_messages.hpp>
#include <hvd/core/internal/elastic_worker.hpp>

namespace {

using namespace hvd::detail;

void say(const char* text) {
  std::puts(text);
  std::fflush(stdout);
}

/// Returns when the socket is ready.
void wait_for(int socket, short events) {
  std::array<pollfd, 1> one{{{.fd = socket, .events = events, .revents = 0}}};
  while (::poll(one.data(), one.size(), -1) <= 0) {
  }
}

void flood(int socket) {
  const hvd::Bytes bytes = encode(Waits{});
  while (::send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
  say(errno == EAGAIN ? "no more room" : "hvdrun is gone");
}

int obey(ElasticWorker& worker, int socket) {
  for (;;) {
    const auto config = worker.next_generation(nullptr);
    if (!config) {
      say("leaves");
      return 0;
    }
    std::printf("generation %u: rank %d of %d, local %d of %d, cross %d of %d\n", config->epoch,
                config->rank, config->size, config->local_rank, config->local_size,
                config->cross_rank, config->cross_size);
    std::fflush(stdout);
    worker.has_state();
    while (!worker.wish().change) wait_for(socket, POLLIN);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  const int socket = std::atoi(std::getenv("HVD_ELASTIC_FD"));
  ElasticWorker* const worker = ElasticWorker::of_process();
  if (worker == nullptr) return 3;
  if (how == "floods") flood(socket);
  if (how == "floods" || how == "deaf") {
    for (;;) ::pause();
  }
  return obey(*worker, socket);
}
